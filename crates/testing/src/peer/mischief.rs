//! How the peer breaks the rules.

use super::*;

fn termination() -> Vec<u8> {
    let request = TermReq {
        status: wire::tcp::FatalErrorStatus::PDU_SEQUENCE_ERROR,
        information: 0,
    };
    let mut out = [0; 152];
    let size = request.encode(Role::Controller, &[0; 72], &mut out);
    out[..size].to_vec()
}

impl Connection {
    #[allow(clippy::too_many_lines)] // One arm for each way to misbehave.
    pub(super) fn misbehave(&mut self, mischief: Mischief, command: &Command) -> Step {
        let cid = command.cid();
        let length = command.data_pointer().unwrap().length();
        let data = vec![0; length as usize];
        let whole = C2hData {
            command_id: cid,
            data_offset: 0,
            data_length: length,
            progress: C2hProgress::Last,
        };
        let half = C2hData {
            data_length: length / 2,
            ..whole
        };
        let r2t = R2t {
            command_id: cid,
            transfer_tag: 1,
            offset: 0,
            length,
        };
        match mischief {
            Mischief::UnknownCommand => self.done(cid ^ 0x4000),
            Mischief::UnknownData => {
                let pdu = C2hData {
                    command_id: cid ^ 0x4000,
                    ..whole
                };
                self.data_pdu(&pdu, &data)
            }
            Mischief::DataBeyond => {
                let pdu = C2hData {
                    data_length: length + 512,
                    ..whole
                };
                self.data_pdu(&pdu, &vec![0; length as usize + 512])
            }
            Mischief::DataGap => {
                let pdu = C2hData {
                    data_offset: length / 2,
                    ..half
                };
                self.data_pdu(&pdu, &data[..length as usize / 2])
            }
            Mischief::DataTwice => {
                self.data_pdu(&whole, &data)?;
                self.data_pdu(&whole, &data)
            }
            Mischief::DataForWrite => self.data_pdu(&whole, &data),
            Mischief::DataMissing => {
                self.data_pdu(&half, &data[..length as usize / 2])?;
                self.done(cid)
            }
            Mischief::EarlySuccess => {
                let pdu = C2hData {
                    progress: C2hProgress::LastAndSuccess,
                    ..half
                };
                self.data_pdu(&pdu, &data[..length as usize / 2])
            }
            Mischief::TransferBeyond => self.send_r2t(&R2t {
                length: length + 4,
                ..r2t
            }),
            Mischief::TransferEmpty => self.send_r2t(&R2t { length: 0, ..r2t }),
            Mischief::TransferAgain => {
                self.send_r2t(&r2t)?;
                self.send_r2t(&r2t)
            }
            Mischief::TransferForRead => self.send_r2t(&r2t),
            Mischief::TransferFlood => {
                // All in one segment, so that they arrive together.
                let mut bytes = Vec::new();
                for index in 0..length / 512 {
                    let mut out = [0; 128];
                    let piece = R2t {
                        offset: index * 512,
                        length: 512,
                        ..r2t
                    };
                    let size = piece.encode(&self.format, &mut out);
                    bytes.extend_from_slice(&out[..size]);
                }
                self.send(&bytes)
            }
            Mischief::SuccessAfter { offset, length } => {
                if length > 0 {
                    let part = R2t {
                        offset,
                        length,
                        ..r2t
                    };
                    self.send_r2t(&part)?;
                }
                self.done(cid)
            }
            Mischief::SecondIcResp => self.send(&self.ic_resp().to_bytes()),
            Mischief::Terminate => self.send(&termination()),
            Mischief::DoneAndTerminate => {
                let completion = Completion::new(cid, 0xffff, Status::SUCCESS);
                let mut out = [0; 128];
                let size = CapsuleResp { completion }.encode(&self.format, &mut out);
                // In one segment, so that they arrive together.
                self.send(&[&out[..size], &termination()].concat())
            }
            Mischief::Hangup => Err(Over),
            damaged => self.send_damaged(damaged, cid),
        }
    }

    /// A completion whose header is wrong.
    pub(super) fn send_damaged(&mut self, mischief: Mischief, cid: u16) -> Step {
        let plain = PduFormat::PLAIN;
        let mut out = [0; 128];
        let completion = Completion::new(cid, 0, Status::SUCCESS);
        CapsuleResp { completion }.encode(&plain, &mut out);
        match mischief {
            Mischief::HeaderLength => out[2] = 25,
            Mischief::HostPdu => out[0] = 4,
            Mischief::NoSuchType => out[0] = 0x0a,
            Mischief::PduLength => out[4] = 23,
            Mischief::DataOffset | Mischief::SuccessWithoutLast => {
                let pdu = C2hData {
                    command_id: cid,
                    data_offset: 0,
                    data_length: 512,
                    progress: C2hProgress::LastAndSuccess,
                };
                pdu.encode(&plain, &mut out);
                if mischief == Mischief::DataOffset {
                    out[3] = 20;
                } else {
                    out[1] &= !wire::tcp::header::LAST_PDU;
                }
            }
            other => panic!("{other:?} is handled elsewhere"),
        }
        self.send(&out[..24])
    }
}

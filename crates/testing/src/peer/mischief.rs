//! Protocol violations of the peer.

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
        let r2t = R2t {
            command_id: cid,
            transfer_tag: 1,
            offset: 0,
            length,
        };
        match mischief {
            Mischief::DataTwice => {
                self.data_pdu(&whole, &data)?;
                self.data_pdu(&whole, &data)
            }
            Mischief::DataForWrite => self.data_pdu(&whole, &data),
            Mischief::DataMissing => {
                let mut half = whole;
                half.data_length /= 2;
                self.data_pdu(&half, &data[..length as usize / 2])?;
                self.done(cid)
            }
            Mischief::TransferAgain => {
                self.send_r2t(&r2t)?;
                self.send_r2t(&r2t)
            }
            Mischief::TransferForRead => self.send_r2t(&r2t),
            Mischief::TransferFlood => {
                // All in one TCP segment, so that they arrive together.
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
            Mischief::Terminate => self.send(&termination()),
            Mischief::DoneAndTerminate => {
                let completion = Completion::new(cid, 0xffff, Status::SUCCESS);
                let mut out = [0; 128];
                let size = CapsuleResp { completion }.encode(&self.format, &mut out);
                // In one TCP segment, so that they arrive together.
                self.send(&[&out[..size], &termination()].concat())
            }
            Mischief::Hangup => Err(Over),
        }
    }
}

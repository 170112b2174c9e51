//! Encoding and parsing are inverse, and a stream gives the same PDUs for any cuts.

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use testing::{IoCommand, parse_ranges};
    use wire::fabrics::connect::ConnectAttributes;
    use wire::fabrics::{
        AuthenticationTransfer, Connect, ConnectResponse, Disconnect, FabricsCommand,
        InvalidParameter, Property, PropertyGet, PropertySet, PropertySize,
    };
    use wire::nvme::feature::{FeatureId, FeatureSelect, NumberOfQueues};
    use wire::nvme::identify::Cns;
    use wire::nvme::io::{DatasetRange, LbaControl};
    use wire::nvme::log_page::LogPageId;
    use wire::nvme::vendor::EndController;
    use wire::nvme::{
        Abort, AdminCommand, AdminOpcode, Command, Completion, DataPointer, DatasetManagement,
        ExtentsCommand, GetFeatures, GetLogPage, Identify, LbaCommand, SetFeatures, SglDescriptor,
        Status,
    };
    use wire::tcp::c2h_data::C2hProgress;
    use wire::tcp::{
        C2hData, CapsuleCmd, CapsuleResp, DataAlignment, FatalErrorStatus, FramerLimits, H2cData,
        IcReq, IcResp, PduFormat, PduHeader, R2t, Role, TermReq,
    };

    use crate::fuzz_entry::{Received, Setup, encode_pdu, initialization, run};

    const LIMITS: FramerLimits = FramerLimits {
        capsule_data_bytes: 8192,
        data_pdu_bytes: 1 << 20,
    };

    fn alignment() -> impl Strategy<Value = DataAlignment> {
        (0_u8..32).prop_map(|code| DataAlignment::from_code(code).unwrap())
    }

    fn format() -> impl Strategy<Value = PduFormat> {
        (any::<bool>(), any::<bool>(), alignment()).prop_map(
            |(header_digest, data_digest, alignment)| PduFormat {
                header_digest,
                data_digest,
                alignment,
            },
        )
    }

    fn data(length: core::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), length)
    }

    fn length_of(data: &[u8]) -> u32 {
        u32::try_from(data.len()).unwrap()
    }

    fn command() -> impl Strategy<Value = Command> {
        any::<[u8; 32]>().prop_flat_map(|first| {
            any::<[u8; 32]>().prop_map(move |second| {
                let mut bytes = [0; 64];
                bytes[..32].copy_from_slice(&first);
                bytes[32..].copy_from_slice(&second);
                Command::from_bytes(bytes)
            })
        })
    }

    fn completion() -> impl Strategy<Value = Completion> {
        (
            any::<u64>(),
            any::<u16>(),
            any::<u16>(),
            any::<u16>(),
            0_u16..0x8000,
        )
            .prop_map(|(result, sq_head, sq_id, cid, status)| Completion {
                result,
                sq_head,
                sq_id,
                cid,
                status: Status(status),
            })
    }

    fn term_req() -> impl Strategy<Value = TermReq> {
        (any::<u16>(), any::<u32>()).prop_map(|(status, information)| TermReq {
            status: FatalErrorStatus(status),
            information,
        })
    }

    /// A PDU that the end in `role` receives after the first one, with its payload.
    fn pdu(role: Role) -> BoxedStrategy<(PduHeader, Vec<u8>)> {
        match role {
            Role::Controller => prop_oneof![
                (command(), data(0..600)).prop_map(|(command, data)| {
                    (PduHeader::CapsuleCmd(CapsuleCmd { command }), data)
                }),
                (
                    any::<u16>(),
                    any::<u16>(),
                    any::<u32>(),
                    any::<bool>(),
                    data(1..900)
                )
                    .prop_map(
                        |(command_id, transfer_tag, data_offset, last, data)| {
                            let data_length = length_of(&data);
                            let pdu = H2cData {
                                command_id,
                                transfer_tag,
                                data_offset,
                                data_length,
                                last,
                            };
                            (PduHeader::H2cData(pdu), data)
                        }
                    ),
                (term_req(), data(0..129))
                    .prop_map(|(term, data)| (PduHeader::H2cTermReq(term), data)),
            ]
            .boxed(),
            Role::Host => prop_oneof![
                completion().prop_map(|completion| {
                    (
                        PduHeader::CapsuleResp(CapsuleResp { completion }),
                        Vec::new(),
                    )
                }),
                (any::<u16>(), any::<u32>(), 0..3, data(1..900)).prop_map(
                    |(command_id, data_offset, progress, data)| {
                        let progress = match progress {
                            0 => C2hProgress::More,
                            1 => C2hProgress::Last,
                            _ => C2hProgress::LastAndSuccess,
                        };
                        let data_length = length_of(&data);
                        let pdu = C2hData {
                            command_id,
                            data_offset,
                            data_length,
                            progress,
                        };
                        (PduHeader::C2hData(pdu), data)
                    }
                ),
                (any::<u16>(), any::<u16>(), any::<u32>(), any::<u32>()).prop_map(
                    |(command_id, transfer_tag, offset, length)| {
                        let pdu = R2t {
                            command_id,
                            transfer_tag,
                            offset,
                            length,
                        };
                        (PduHeader::R2t(pdu), Vec::new())
                    }
                ),
                (term_req(), data(0..129))
                    .prop_map(|(term, data)| (PduHeader::C2hTermReq(term), data)),
            ]
            .boxed(),
        }
    }

    fn role() -> impl Strategy<Value = Role> {
        prop_oneof![Just(Role::Controller), Just(Role::Host)]
    }

    /// A stream for an end, with the expected result.
    fn stream(pdus: usize) -> impl Strategy<Value = (Setup, Vec<u8>, Vec<Received>)> {
        (role(), format())
            .prop_flat_map(move |(role, format)| {
                (
                    Just(role),
                    Just(format),
                    prop::collection::vec(pdu(role), 1..pdus),
                )
            })
            .prop_map(|(role, format, pdus)| {
                let setup = Setup {
                    role,
                    format,
                    limits: LIMITS,
                };
                let mut bytes = initialization(role);
                let mut expected = run(&setup, &bytes, &[], false).pdus;
                for (header, data) in pdus {
                    bytes.extend(encode_pdu(&header, &data, &format));
                    expected.push(Received {
                        header,
                        data,
                        digest_ok: Some(true),
                    });
                }
                (setup, bytes, expected)
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// `parse(encode(v)) == v` for every PDU, with any digests and alignment; and encoding
        /// returns the parsed bytes.
        #[test]
        fn pdus_come_back((setup, bytes, expected) in stream(8)) {
            let outcome = run(&setup, &bytes, &[], false);
            prop_assert_eq!(outcome.error, None);
            prop_assert_eq!(&outcome.pdus, &expected);
            let mut again = initialization(setup.role);
            for pdu in &outcome.pdus[1..] {
                again.extend(encode_pdu(&pdu.header, &pdu.data, &setup.format));
            }
            prop_assert_eq!(again, bytes);
        }

        /// Random cuts do not change the result.
        #[test]
        fn random_cuts_change_nothing(
            (setup, bytes, expected) in stream(6),
            cuts in prop::collection::vec(0_usize..200, 0..60),
            external in any::<bool>(),
        ) {
            let outcome = run(&setup, &bytes, &cuts, external);
            prop_assert_eq!(outcome.error, None);
            prop_assert_eq!(outcome.pdus, expected);
        }

        /// One flipped bit gives the same result for any cuts, and with both digests on is always
        /// detected.
        #[test]
        fn damage_is_seen_however_it_is_cut(
            (setup, mut bytes, expected) in stream(4),
            place in any::<prop::sample::Index>(),
            bit in 0..8,
            cuts in prop::collection::vec(0_usize..100, 0..40),
        ) {
            let place = place.index(bytes.len());
            bytes[place] ^= 1_u8 << bit;
            let whole = run(&setup, &bytes, &[], false);
            prop_assert_eq!(&whole, &run(&setup, &bytes, &cuts, false));
            prop_assert_eq!(&whole, &run(&setup, &bytes, &cuts, true));
            let digests = setup.format.header_digest && setup.format.data_digest;
            let dword = setup.format.alignment == DataAlignment::DWORD;
            let covered = !expected.iter().any(|pdu| {
                matches!(pdu.header, PduHeader::H2cTermReq(_) | PduHeader::C2hTermReq(_))
            });
            if digests && dword && covered && place >= 128 {
                let intact = whole.error.is_none()
                    && whole.pdus.iter().all(|pdu| pdu.digest_ok == Some(true));
                prop_assert!(!intact, "damage at {} went unnoticed", place);
            }
        }

        #[test]
        fn ic_req_comes_back(
            host_alignment in alignment(),
            header_digest in any::<bool>(),
            data_digest in any::<bool>(),
            max_r2t in any::<u32>(),
        ) {
            let pdu = IcReq { host_alignment, header_digest, data_digest, max_r2t };
            prop_assert_eq!(IcReq::parse(&pdu.to_bytes()), Ok(pdu));
        }

        #[test]
        fn ic_resp_comes_back(
            controller_alignment in alignment(),
            header_digest in any::<bool>(),
            data_digest in any::<bool>(),
            dwords in 1024_u32..(1 << 30),
        ) {
            let max_h2c_data = dwords * 4;
            let pdu = IcResp { controller_alignment, header_digest, data_digest, max_h2c_data };
            prop_assert_eq!(IcResp::parse(&pdu.to_bytes()), Ok(pdu));
        }

        #[test]
        fn completions_come_back(completion in completion()) {
            prop_assert_eq!(Completion::parse(&completion.to_bytes()), completion);
        }

        #[test]
        fn block_commands_come_back(
            (nsid, slba, blocks) in (any::<u32>(), any::<u64>(), 1_u32..=65_536),
            (control, dataset_hints, cid) in (any::<u16>(), any::<u8>(), any::<u16>()),
            kind in 0..5,
        ) {
            let lba =
                LbaCommand { nsid, slba, blocks, control: LbaControl(control), dataset_hints };
            let command = match kind {
                0 => IoCommand::Read(lba),
                1 => IoCommand::Write(lba),
                2 => IoCommand::Compare(lba),
                3 => IoCommand::Verify(lba),
                _ => IoCommand::WriteZeroes(lba),
            };
            let extents = ExtentsCommand {
                nsid,
                extents: u16::from(dataset_hints) + 1,
                blocks,
                fua: lba.control.fua(),
                outcomes: slba % 2 == 1,
            };
            for command in [
                command,
                IoCommand::ReadExtents(extents),
                IoCommand::WriteExtents(extents),
            ] {
                let bytes = command.encode(cid);
                prop_assert_eq!(bytes.cid(), cid);
                prop_assert_eq!(IoCommand::parse(&bytes), Ok(command));
            }
        }

        #[test]
        fn dataset_management_comes_back(
            nsid in any::<u32>(),
            ranges in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u64>()), 1..=256),
            (deallocate, integral_write, integral_read) in any::<(bool, bool, bool)>(),
        ) {
            let count = u16::try_from(ranges.len()).unwrap();
            let dsm = DatasetManagement {
                nsid, ranges: count, deallocate, integral_write, integral_read,
            };
            prop_assert_eq!(DatasetManagement::parse(&dsm.encode(1)), dsm);
            let ranges: Vec<_> = ranges
                .into_iter()
                .map(|(attributes, blocks, slba)| DatasetRange { attributes, blocks, slba })
                .collect();
            let data: Vec<u8> = ranges.iter().flat_map(DatasetRange::to_bytes).collect();
            prop_assert!(parse_ranges(&dsm, &data).unwrap().eq(ranges));
            prop_assert!(parse_ranges(&dsm, &data[1..]).is_err());
        }

        #[test]
        fn admin_commands_come_back(
            (nsid, low, high, cid) in any::<(u32, u16, u16, u16)>(),
            (a, b, c) in any::<(u8, u8, u8)>(),
            (dwords, offset, flag) in any::<(u32, u64, (bool, bool))>(),
        ) {
            let commands = [
                AdminCommand::Identify(Identify {
                    nsid, cns: Cns(a), controller_id: low, specific_id: high, command_set: b,
                    uuid_index: c & 0x7f,
                }),
                AdminCommand::GetLogPage(GetLogPage {
                    nsid, log_page: LogPageId(a), dwords, offset, offset_is_index: flag.0,
                    retain_async_event: flag.1, specific_field: b & 0x7f, specific_id: high,
                    command_set: c, uuid_index: a & 0x7f,
                }),
                AdminCommand::GetFeatures(GetFeatures {
                    nsid, feature: FeatureId(a), select: FeatureSelect(b & 7), dword11: dwords,
                    uuid_index: c & 0x7f,
                }),
                AdminCommand::SetFeatures(SetFeatures {
                    nsid, feature: FeatureId(a), save: flag.0,
                    dwords: [dwords, u32::from(low), u32::from(high)],
                    dword15: dwords ^ 1, uuid_index: c & 0x7f,
                }),
                AdminCommand::Abort(Abort { sq_id: low, cid: high }),
                AdminCommand::AsyncEventRequest,
                AdminCommand::KeepAlive,
                AdminCommand::EndController(EndController { controller_id: high }),
            ];
            for command in commands {
                prop_assert_eq!(AdminCommand::parse(&command.encode(cid)), Ok(command));
            }
        }

        #[test]
        fn fabrics_commands_come_back(
            (record_format, queue_id, sq_size, cattr) in any::<(u16, u16, u16, u8)>(),
            (kato, offset, value, eight) in any::<(u32, u32, u64, bool)>(),
        ) {
            let size = if eight { PropertySize::Eight } else { PropertySize::Four };
            let property = Property(offset);
            let transfer = AuthenticationTransfer {
                protocol: cattr, specific: record_format.to_le_bytes(), length: kato,
            };
            let commands = [
                FabricsCommand::Connect(Connect {
                    record_format, queue_id, sq_size, attributes: ConnectAttributes(cattr),
                    keep_alive_timeout_ms: kato,
                }),
                FabricsCommand::AuthenticationSend(transfer),
                FabricsCommand::AuthenticationReceive(transfer),
                FabricsCommand::PropertyGet(PropertyGet { size, property }),
                FabricsCommand::PropertySet(PropertySet { size, property, value }),
                FabricsCommand::Disconnect(Disconnect { record_format }),
            ];
            for command in commands {
                prop_assert_eq!(FabricsCommand::parse(&command.encode(queue_id)), Ok(command));
            }
            let response = ConnectResponse { cntlid: queue_id, authentication: sq_size };
            prop_assert_eq!(ConnectResponse::from_dword(response.to_dword()), response);
            let invalid = InvalidParameter { offset: queue_id, is_in_data: eight };
            prop_assert_eq!(InvalidParameter::from_dword(invalid.to_dword()), invalid);
            let queues = NumberOfQueues { submission: queue_id, completion: sq_size };
            prop_assert_eq!(NumberOfQueues::from_dword(queues.to_dword()), queues);
        }

        #[test]
        fn data_pointers_come_back(offset in any::<u64>(), length in any::<u32>()) {
            let mut command = Command::new(AdminOpcode::IDENTIFY.0, 1);
            command.set_sgl(SglDescriptor::transport(length));
            prop_assert_eq!(command.data_pointer(), Ok(DataPointer::Transport { length }));
            command.set_sgl(SglDescriptor::in_capsule(offset, length));
            prop_assert_eq!(command.data_pointer(), Ok(DataPointer::InCapsule { offset, length }));
        }
    }

    /// Every position at which a stream can be cut in two.
    #[test]
    fn every_cut_changes_nothing() {
        for (header_digest, data_digest) in
            [(false, false), (true, false), (false, true), (true, true)]
        {
            for role in [Role::Controller, Role::Host] {
                let alignment = DataAlignment::from_code(7).unwrap();
                let format = PduFormat {
                    header_digest,
                    data_digest,
                    alignment,
                };
                every_cut(role, format);
            }
        }
    }

    fn every_cut(role: Role, format: PduFormat) {
        let setup = Setup {
            role,
            format,
            limits: LIMITS,
        };
        let payload: Vec<u8> = (0..=40).collect();
        let pdus = samples(role, &payload);
        let mut stream = initialization(role);
        for (header, data) in &pdus {
            stream.extend(encode_pdu(header, data, &format));
        }
        let whole = run(&setup, &stream, &[], false);
        assert_eq!(whole.error, None);
        assert_eq!(whole.pdus.len(), pdus.len() + 1);
        for cut in 0..=stream.len() {
            for external in [false, true] {
                assert_eq!(
                    run(&setup, &stream, &[cut], external),
                    whole,
                    "cut at {cut}"
                );
                let bytewise = vec![1; cut];
                assert_eq!(
                    run(&setup, &stream, &bytewise, external),
                    whole,
                    "first {cut} bytes"
                );
            }
        }
    }

    /// A PDU of each kind.
    fn samples(role: Role, payload: &[u8]) -> Vec<(PduHeader, &[u8])> {
        let data_length = length_of(payload);
        match role {
            Role::Controller => vec![
                (
                    PduHeader::CapsuleCmd(CapsuleCmd {
                        command: Command::new(2, 1),
                    }),
                    &[],
                ),
                (
                    PduHeader::CapsuleCmd(CapsuleCmd {
                        command: Command::new(1, 2),
                    }),
                    payload,
                ),
                (
                    PduHeader::H2cData(H2cData {
                        command_id: 2,
                        transfer_tag: 3,
                        data_offset: 0,
                        data_length,
                        last: true,
                    }),
                    payload,
                ),
            ],
            Role::Host => vec![
                (
                    PduHeader::C2hData(C2hData {
                        command_id: 2,
                        data_offset: 0,
                        data_length,
                        progress: C2hProgress::LastAndSuccess,
                    }),
                    payload,
                ),
                (
                    PduHeader::R2t(R2t {
                        command_id: 1,
                        transfer_tag: 2,
                        offset: 3,
                        length: 4,
                    }),
                    &[],
                ),
                (
                    PduHeader::CapsuleResp(CapsuleResp {
                        completion: Completion::new(1, 2, Status::LBA_OUT_OF_RANGE),
                    }),
                    &[],
                ),
            ],
        }
    }
}

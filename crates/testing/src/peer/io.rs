//! The peer's I/O commands, and the data transfers of its writes.

use super::*;
use wire::nvme::LbaCommand;

impl Connection {
    pub(super) fn io(&mut self, command: &Command, capsule: &[u8]) -> Step {
        let cid = command.cid();
        self.state.seen.io_commands.fetch_add(1, Ordering::SeqCst);
        let parsed = IoCommand::parse(command).unwrap();
        let mischief = {
            let mut behaviour = self.state.behaviour.lock().unwrap();
            if behaviour.swallow > 0 {
                behaviour.swallow -= 1;
                return Ok(());
            }
            if behaviour.hold > 0 {
                behaviour.hold -= 1;
                self.keep(command, capsule);
                return Ok(());
            }
            if behaviour.refusals > 0 {
                behaviour.refusals -= 1;
                drop(behaviour);
                return self.complete(cid, Status::TRANSIENT_TRANSPORT_ERROR, 0);
            }
            behaviour.mischief.take()
        };
        if let Some(mischief) = mischief {
            self.misbehaved = true;
            return self.misbehave(mischief, command);
        }
        if self.is_too_long(&parsed, capsule) {
            return self.complete(cid, Status::INVALID_FIELD.with_dnr(), 0);
        }
        match parsed {
            IoCommand::Read(read) => self.read(cid, range(&read)),
            IoCommand::Write(write) | IoCommand::Compare(write) => {
                let compare = matches!(parsed, IoCommand::Compare(_));
                let place = range(&write);
                let inside = inside(command, capsule, place.len());
                self.begin_write(cid, vec![place], compare, inside)
            }
            IoCommand::ReadExtents(read) if self.behaviour.extents.is_some() => {
                self.read_extents(cid, places(&read, capsule))
            }
            IoCommand::WriteExtents(write) if self.behaviour.extents.is_some() => {
                let data = &capsule[..capsule.len() - write.table_bytes()];
                let inside = (!data.is_empty()).then_some(data);
                self.begin_write(cid, places(&write, capsule), false, inside)
            }
            IoCommand::WriteZeroes(zeroes) => {
                self.state.memory.lock().unwrap()[range(&zeroes)].fill(0);
                self.done(cid)
            }
            IoCommand::DatasetManagement(dsm) => {
                let ranges = parse_ranges(&dsm, capsule).unwrap();
                for range in ranges {
                    let start = range.slba as usize * BLOCK;
                    let end = start + range.blocks as usize * BLOCK;
                    self.state.memory.lock().unwrap()[start..end].fill(0);
                }
                self.done(cid)
            }
            IoCommand::Flush { .. } | IoCommand::Verify(_) => self.done(cid),
            IoCommand::ReadExtents(_) | IoCommand::WriteExtents(_) => {
                self.complete(cid, Status::INVALID_OPCODE.with_dnr(), 0)
            }
        }
    }

    fn read(&mut self, cid: u16, bytes: std::ops::Range<usize>) -> Step {
        let memory = self.state.memory.lock().unwrap();
        let data = memory.get(bytes).map(<[u8]>::to_vec);
        drop(memory);
        match data {
            Some(data) => self.send_data(cid, &data),
            None => self.complete(cid, Status::LBA_OUT_OF_RANGE.with_dnr(), 0),
        }
    }

    /// Holds a command until [`Peer::release`].
    fn keep(&self, command: &Command, capsule: &[u8]) {
        let parsed = IoCommand::parse(command);
        let over_extents = matches!(
            parsed,
            Ok(IoCommand::ReadExtents(_) | IoCommand::WriteExtents(_))
        );
        let seen = &self.state.seen;
        seen.held_extents
            .fetch_add(usize::from(over_extents), Ordering::SeqCst);
        seen.held.fetch_add(1, Ordering::SeqCst);
        let mut held = self.state.held.lock().unwrap();
        held.push(Held {
            stream: self.stream.try_clone().unwrap(),
            format: self.format,
            queue_id: self.queue_id,
            command: *command,
            capsule: capsule.to_vec(),
        });
        let at_once = &self.state.seen.held_at_once;
        at_once.fetch_max(held.len(), Ordering::SeqCst);
    }

    fn read_extents(&mut self, cid: u16, places: Vec<Place>) -> Step {
        let memory = self.state.memory.lock().unwrap();
        let places = places.into_iter();
        let data: Vec<_> = places.flat_map(|place| memory[place].to_vec()).collect();
        drop(memory);
        self.send_data(cid, &data)
    }

    /// Returns true if a command exceeds the length limits that the controller reports.
    pub(super) fn is_too_long(&self, command: &IoCommand, capsule: &[u8]) -> bool {
        let beyond = |shift: u8, blocks: u32| {
            // A limit of 2^52 pages or more means no limit.
            (1..52).contains(&shift) && blocks as usize * BLOCK > 4096 << shift
        };
        if let IoCommand::Read(lba) | IoCommand::Write(lba) | IoCommand::Compare(lba) = command {
            return beyond(self.behaviour.mdts, lba.blocks);
        }
        let Some(lengths) = &self.behaviour.lengths else {
            return false;
        };
        match command {
            IoCommand::WriteZeroes(zeroes) => beyond(lengths.wzsl, zeroes.blocks),
            IoCommand::Verify(verify) => beyond(lengths.vsl, verify.blocks),
            IoCommand::DatasetManagement(dsm) => {
                let ranges = parse_ranges(dsm, capsule).unwrap();
                let max = lengths.dmrsl;
                max > 0 && ranges.into_iter().any(|range| range.blocks > max)
            }
            _ => false,
        }
    }

    pub(super) fn begin_write(
        &mut self,
        cid: u16,
        places: Vec<Place>,
        compare: bool,
        inside: Option<&[u8]>,
    ) -> Step {
        let mut writing = Writing {
            compare,
            cid,
            data: vec![0; places.iter().map(Place::len).sum()],
            places,
            received: 0,
            asked: 0,
        };
        if let Some(data) = inside {
            writing.data.copy_from_slice(data);
            return self.finish_write(&writing);
        }
        for _ in 0..self.behaviour.transfers_at_once {
            self.ask(&mut writing)?;
        }
        self.writing.push(writing);
        Ok(())
    }

    /// Sends the next R2T of a write.
    pub(super) fn ask(&mut self, writing: &mut Writing) -> Step {
        let left = writing.data.len() as u32 - writing.asked;
        let length = left.min(self.behaviour.transfer_bytes);
        if length == 0 {
            return Ok(());
        }
        let r2t = R2t {
            command_id: writing.cid,
            transfer_tag: writing.cid ^ 0x5555,
            offset: writing.asked,
            length,
        };
        writing.asked += length;
        self.send_r2t(&r2t)
    }

    pub(super) fn send_r2t(&mut self, r2t: &R2t) -> Step {
        let mut out = [0; 128];
        let length = r2t.encode(&self.format, &mut out);
        self.send(&out[..length])
    }

    pub(super) fn data(&mut self, cid: u16, pdu: &wire::tcp::H2cData, data: &[u8]) -> Step {
        let place = self.writing.iter().position(|w| w.cid == cid);
        let Some(place) = place else {
            assert!(
                self.misbehaved,
                "the host sends data only where it was asked for"
            );
            return Ok(());
        };
        let mut writing = self.writing.swap_remove(place);
        assert!(self.misbehaved || pdu.transfer_tag == cid ^ 0x5555);
        assert_eq!(pdu.data_offset, writing.received);
        let start = writing.received as usize;
        writing.data[start..start + data.len()].copy_from_slice(data);
        writing.received += data.len() as u32;
        if writing.received as usize == writing.data.len() {
            assert!(pdu.last, "the last PDU says so");
            return self.finish_write(&writing);
        }
        if pdu.last {
            self.ask(&mut writing)?;
        }
        self.writing.push(writing);
        Ok(())
    }

    pub(super) fn finish_write(&mut self, writing: &Writing) -> Step {
        let mut memory = self.state.memory.lock().unwrap();
        let mut status = Status::SUCCESS;
        let mut data = &writing.data[..];
        for place in &writing.places {
            let (now, later) = data.split_at(place.len());
            let target = &mut memory[place.clone()];
            if !writing.compare {
                target.copy_from_slice(now);
            } else if target != now {
                status = Status::COMPARE_FAILURE.with_dnr();
            }
            data = later;
        }
        drop(memory);
        if !writing.compare {
            self.state.seen.writes.fetch_add(1, Ordering::SeqCst);
        }
        self.complete(writing.cid, status, 0)
    }
}

/// Returns the in-capsule data of a write, if there is any.
fn inside<'a>(command: &Command, capsule: &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    match command.data_pointer().unwrap() {
        DataPointer::InCapsule { .. } => Some(capsule),
        DataPointer::Transport { length } => {
            assert_eq!(length as usize, bytes);
            None
        }
    }
}

/// Returns the memory ranges of a command over extents.
fn places(command: &ExtentsCommand, capsule: &[u8]) -> Vec<Place> {
    let entries = command.parse_table(capsule).unwrap();
    let place = |entry: wire::nvme::ExtentEntry| {
        let start = entry.slba as usize * BLOCK;
        start..start + entry.blocks as usize * BLOCK
    };
    entries.map(place).collect()
}

fn range(command: &LbaCommand) -> std::ops::Range<usize> {
    let start = command.slba as usize * BLOCK;
    start..start + command.blocks as usize * BLOCK
}

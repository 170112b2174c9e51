//! Reading a whole discovery log. `[NVMe Base 2.0 §5.16.1.23]`

use super::Progress;
use crate::info::DiscoveryEntry;
use crate::limits::{DISCOVERY_ENTRIES_MAX, DISCOVERY_READS_MAX};
use wire::fabrics::{DiscoveryLogEntry, DiscoveryLogHeader};
use wire::nvme::log_page::LogPageId;
use wire::nvme::{AdminCommand, GetLogPage, Status};

/// Next read of the log scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogStage {
    /// The header.
    Header,
    /// Entries from this one on.
    Entries { next: u64 },
    /// The header again: the log must not have changed meanwhile.
    Check,
}

/// Entries read by one command.
const ENTRIES_PER_READ: u64 = 4;

/// Reads a whole discovery log, again if it changes meanwhile. `[NVMe Base 2.0 §5.16.1.23]`
#[derive(Debug)]
pub(crate) struct LogScan {
    stage: LogStage,
    generation: u64,
    records: u64,
    reads: u32,
    pub(crate) entries: Vec<DiscoveryEntry>,
}

impl LogScan {
    pub(crate) fn new() -> Self {
        Self {
            stage: LogStage::Header,
            generation: 0,
            records: 0,
            reads: 0,
            entries: Vec::new(),
        }
    }

    /// Returns the next command, and the bytes that it returns.
    pub(crate) fn command(&self) -> (AdminCommand, usize) {
        const ENTRY: u64 = DiscoveryLogEntry::SIZE as u64;
        let (offset, bytes) = match self.stage {
            LogStage::Header | LogStage::Check => (0, ENTRY),
            LogStage::Entries { next } => {
                let count = ENTRIES_PER_READ.min(self.records - next);
                (ENTRY * (next + 1), ENTRY * count)
            }
        };
        let length = u32::try_from(bytes).expect("a few entries");
        let mut get = GetLogPage::new(LogPageId::DISCOVERY, 0, offset, length);
        // Only the last read re-enables the controller's report of the next change.
        get.retain_async_event = self.stage != LogStage::Check;
        (AdminCommand::GetLogPage(get), length as usize)
    }

    /// Takes the answer to the command.
    pub(crate) fn answer(&mut self, status: Status, data: &[u8]) -> Progress {
        if !status.is_success() {
            return Progress::Failed("it returned no discovery log page");
        }
        match self.stage {
            LogStage::Header | LogStage::Check => {
                let Some(header) = DiscoveryLogHeader::parse_prefix(data) else {
                    return Progress::Failed("its discovery log page is shorter than the header");
                };
                self.header(&header)
            }
            LogStage::Entries { next } => {
                let (entries, _) = data.as_chunks::<{ DiscoveryLogEntry::SIZE }>();
                for entry in entries {
                    let entry = DiscoveryLogEntry::parse(entry);
                    self.entries.push(DiscoveryEntry::from_log(&entry));
                }
                let next = next + entries.len() as u64;
                self.stage = if next < self.records {
                    LogStage::Entries { next }
                } else {
                    LogStage::Check
                };
                Progress::Continue
            }
        }
    }

    fn header(&mut self, header: &DiscoveryLogHeader) -> Progress {
        if header.record_format != 0 {
            return Progress::Failed("its discovery log page has an unknown format");
        }
        if header.records > DISCOVERY_ENTRIES_MAX {
            return Progress::Failed("its discovery log page is too long");
        }
        let same = header.generation == self.generation && header.records == self.records;
        if self.stage == LogStage::Check && same {
            return Progress::Finished;
        }
        self.reads += 1;
        if self.reads > DISCOVERY_READS_MAX {
            return Progress::Failed("its discovery log page kept changing while it was read");
        }
        self.generation = header.generation;
        self.records = header.records;
        self.entries.clear();
        self.stage = if header.records == 0 {
            LogStage::Check
        } else {
            LogStage::Entries { next: 0 }
        };
        Progress::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(generation: u64, records: u64) -> [u8; 1024] {
        let header = DiscoveryLogHeader {
            generation,
            records,
            record_format: 0,
        };
        header.to_bytes()
    }

    #[test]
    fn a_log_that_changes_is_read_again_and_one_that_never_rests_is_given_up() {
        let mut scan = LogScan::new();
        let ok = Status::SUCCESS;
        assert_eq!(scan.answer(ok, &header(1, 5)), Progress::Continue);
        assert_eq!(scan.command().1, 4096);
        assert_eq!(scan.answer(ok, &[0; 4096]), Progress::Continue);
        assert_eq!(scan.command().1, 1024);
        assert_eq!(scan.answer(ok, &[0; 1024]), Progress::Continue);
        assert_eq!(scan.entries.len(), 5);
        assert_eq!(scan.answer(ok, &header(2, 1)), Progress::Continue);
        assert_eq!(scan.entries.len(), 0);
        assert_eq!(scan.answer(ok, &[0; 1024]), Progress::Continue);
        assert_eq!(scan.answer(ok, &header(2, 1)), Progress::Finished);
        assert_eq!(scan.entries.len(), 1);

        let mut restless = LogScan::new();
        let mut generation = 0;
        let end = loop {
            generation += 1;
            let progress = restless.answer(ok, &header(generation, 0));
            if progress != Progress::Continue {
                break progress;
            }
        };
        assert!(matches!(end, Progress::Failed(_)));
        let mut huge = LogScan::new();
        assert!(matches!(
            huge.answer(ok, &header(1, u64::MAX)),
            Progress::Failed(_)
        ));
    }
}

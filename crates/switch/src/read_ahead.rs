//! Read-ahead: the pages that a cache reads before they are requested.
//!
//! A stream is a sequence of reads, each of which begins at the end of the previous one. Its first
//! window is 16 KiB, and windows double up to 128 KiB. The next window is read as soon as the
//! stream enters the last one, so that a reader no faster than the device never waits. One
//! [`ReadAhead`] serves one thread; its streams may alternate. Context look-up detects streams that
//! are spread over several threads: a read is sequential if the preceding page is in the cache.
//! Random streams close to each other also match, and the device then reads unused pages, so it can
//! be turned off. `[Yu §4.7]`

use std::ops::Range;

/// Maximum number of streams tracked per thread.
const STREAMS: usize = 8;

/// Largest window in pages of 4 KiB: the most that a cache reads at once.
pub const WINDOW_PAGES_MAX: u32 = 32;

/// Default first window in pages, unless the largest is smaller.
const FIRST_PAGES: u32 = 4;

base::with_defaults! {
    /// Rules of read-ahead.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadAheadRules {
        /// First window of a stream in pages; 0 turns read-ahead off.
        pub first_pages: u32 = FIRST_PAGES,
        /// Largest window in pages: up to [`WINDOW_PAGES_MAX`].
        pub most_pages: u32 = WINDOW_PAGES_MAX,
        /// A read is also sequential if the preceding page is in the cache.
        pub context_look_up: bool = false,
    }
}

impl ReadAheadRules {
    /// Rules with windows of up to `pages`, at most [`WINDOW_PAGES_MAX`]; 0 turns read-ahead off.
    /// `[Yu §4.7, Fig. 13]`
    #[must_use]
    pub fn up_to(pages: u32) -> Self {
        let most_pages = pages.min(WINDOW_PAGES_MAX);
        Self {
            first_pages: most_pages.min(FIRST_PAGES),
            most_pages,
            ..Self::default()
        }
    }
}

/// A stream; positions in pages.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// End of its last read, exclusive.
    next: u64,
    /// End of its last window.
    ahead: u64,
    /// Size of that window; 0 for a stream of a single read.
    window: u32,
    /// Number of the last read that belonged to it; 0 for an unused slot.
    used: u64,
}

/// Streams of one thread.
#[derive(Clone, Debug)]
pub struct ReadAhead {
    rules: ReadAheadRules,
    streams: [Stream; STREAMS],
    reads: u64,
}

impl ReadAhead {
    /// Creates the state of a thread without streams.
    #[must_use]
    pub fn new(rules: ReadAheadRules) -> Self {
        Self {
            rules,
            streams: [Stream::default(); STREAMS],
            reads: 0,
        }
    }

    /// Records a read of these pages, and returns the pages to read ahead, which may lie beyond the
    /// end of the device. `before_is_cached` returns true if the page before the read is in the
    /// cache; it is called only with context look-up.
    pub fn read(
        &mut self,
        pages: Range<u64>,
        before_is_cached: impl FnOnce() -> bool,
    ) -> Option<Range<u64>> {
        if self.rules.first_pages == 0 {
            return None;
        }
        self.reads += 1;
        let reads = self.reads;
        // A read of less than a page may begin in the page in which the previous one ended.
        let follows = |stream: &&mut Stream| stream.used > 0 && follows(stream.next, pages.start);
        if let Some(stream) = self.streams.iter_mut().find(follows) {
            let within = pages.end == stream.next;
            stream.next = pages.end;
            stream.used = reads;
            return if within && stream.window == 0 {
                // The same page again does not count as a second read.
                None
            } else {
                stream.advance(self.rules)
            };
        }
        let look_up = self.rules.context_look_up && pages.start > 0 && before_is_cached();
        let place = self
            .streams
            .iter_mut()
            .min_by_key(|s| (s.window > 0, s.used));
        let stream = place?;
        *stream = Stream {
            next: pages.end,
            ahead: 0,
            window: 0,
            used: reads,
        };
        if look_up {
            stream.advance(self.rules)
        } else {
            None
        }
    }
}

/// Returns true if a read from page `first` continues a stream that ended before page `next`.
const fn follows(next: u64, first: u64) -> bool {
    first == next || first + 1 == next
}

impl Stream {
    /// Returns the next window, if the stream has entered its last one.
    fn advance(&mut self, rules: ReadAheadRules) -> Option<Range<u64>> {
        if self.window > 0 && self.next + u64::from(self.window) <= self.ahead {
            return None;
        }
        let doubled = self.window.saturating_mul(2);
        self.window = doubled.clamp(rules.first_pages, rules.most_pages.max(rules.first_pages));
        let start = self.ahead.max(self.next);
        self.ahead = start + u64::from(self.window);
        Some(start..self.ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams(context_look_up: bool) -> ReadAhead {
        ReadAhead::new(ReadAheadRules {
            context_look_up,
            ..ReadAheadRules::default()
        })
    }

    #[test]
    fn a_window_doubles_up_to_128_kib_and_windows_join() {
        let mut streams = streams(false);
        let mut end = None;
        let mut sizes = Vec::new();
        for page in 100..400 {
            let Some(ahead) = streams.read(page..page + 1, || unreachable!("off")) else {
                continue;
            };
            assert!(ahead.start > page, "{ahead:?} at {page}");
            assert!(end.is_none_or(|end| end == ahead.start), "no gap");
            end = Some(ahead.end);
            sizes.push(ahead.end - ahead.start);
        }
        assert_eq!(sizes[..5], [4, 8, 16, 32, 32]);
    }

    #[test]
    fn a_sequential_reader_is_always_within_what_was_read_ahead() {
        let mut streams = streams(false);
        let mut ahead_of = 0;
        for page in 0..1_000 {
            assert!(
                page < 2 || page < ahead_of,
                "page {page} was not read ahead"
            );
            if let Some(ahead) = streams.read(page..page + 1, || false) {
                ahead_of = ahead.end;
            }
            assert!(ahead_of <= page + 1 + 64, "two windows at most");
        }
    }

    #[test]
    fn random_reads_read_nothing_ahead() {
        let mut streams = streams(false);
        for read in 0..1_000_u64 {
            let page = read * 7_919 % 10_007;
            assert_eq!(streams.read(page..page + 1, || true), None);
        }
    }

    #[test]
    fn context_look_up_takes_close_random_reads_for_sequential() {
        let mut with = streams(true);
        assert_eq!(with.read(50..51, || true), Some(51..55));
        assert_eq!(with.read(90..91, || false), None);
        assert_eq!(
            with.read(0..1, || true),
            None,
            "no page is before the first"
        );
    }

    #[test]
    fn streams_that_alternate_are_told_apart() {
        let mut streams = streams(false);
        let mut windows = 0;
        for step in 0..64 {
            for stream in 0..4 {
                let page = stream * 10_000 + step;
                windows += u32::from(streams.read(page..page + 1, || false).is_some());
            }
            // A random read in between takes no stream's slot.
            let page = 1_000_000 + step * 977;
            assert_eq!(streams.read(page..page + 1, || false), None);
        }
        assert!(windows >= 4 * 4, "{windows}");
    }

    #[test]
    fn small_reads_of_one_page_are_no_stream_until_the_next_page() {
        let mut streams = streams(false);
        for _ in 0..8 {
            assert_eq!(streams.read(7..8, || false), None);
        }
        assert_eq!(streams.read(8..9, || false), Some(9..13));
    }

    #[test]
    fn the_largest_window_can_be_chosen() {
        for (pages, expected) in [(0, [0, 0, 0]), (2, [2, 2, 2]), (8, [4, 8, 8])] {
            let mut streams = ReadAhead::new(ReadAheadRules::up_to(pages));
            let mut windows = (0..100)
                .filter_map(|page| streams.read(page..page + 1, || unreachable!("off")))
                .map(|ahead| ahead.end - ahead.start);
            let first = [(); 3].map(|()| windows.next().unwrap_or(0));
            assert_eq!(first, expected, "up to {pages}");
        }
    }

    #[test]
    fn no_window_turns_it_off() {
        let rules = ReadAheadRules {
            first_pages: 0,
            ..ReadAheadRules::default()
        };
        let mut streams = ReadAhead::new(rules);
        for page in 0..10 {
            assert_eq!(streams.read(page..page + 1, || true), None);
        }
    }
}

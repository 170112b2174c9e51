//! A queue and its tags.

use super::abi::{DESCRIPTOR_BYTES, Request};
use reactor::IoSlice;
use switch::Class;

/// The descriptions of a queue's requests.
pub(super) trait Descriptions {
    /// Returns the description of a tag's request. The kernel has told that it is there, and changes
    /// it only when the request was answered.
    ///
    /// # Panics
    /// If the queue has no such tag.
    fn read(&self, tag: u16) -> [u8; DESCRIPTOR_BYTES];
}

/// A queue of a device.
#[derive(Debug)]
pub(super) struct Queue<D> {
    pub(super) number: u16,
    /// The most bytes of a request's data.
    pub(super) request_bytes: usize,
    pub(super) descriptions: D,
    pub(super) tags: Vec<Tag>,
    /// Requests under way.
    pub(super) requests: usize,
}

impl<D> Queue<D> {
    /// A queue of which the kernel will hold the commands of all `depth` tags.
    pub(super) fn new(number: u16, depth: u16, request_bytes: usize, descriptions: D) -> Self {
        let tag = || Tag {
            state: TagState::Fetching,
            class: Class::DEFAULT,
            pieces: Vec::new(),
        };
        let mut tags = Vec::new();
        tags.resize_with(depth.into(), tag);
        Self {
            number,
            request_bytes,
            descriptions,
            tags,
            requests: 0,
        }
    }
}

/// A tag. Each method is one transition; any other than those named is a mistake of the caller's,
/// and panics.
#[derive(Debug)]
pub(super) struct Tag {
    state: TagState,
    /// Class of its request.
    pub(super) class: Class,
    /// The memory of each piece of data that is copied, while data is.
    pieces: Vec<Option<IoSlice>>,
}

/// The state of a tag, by what it waits for.
#[derive(Debug)]
enum TagState {
    /// The kernel holds its command.
    Fetching,
    /// Its request waits for memory.
    Taken,
    /// The data of its request is being copied.
    Copying {
        done: Copying,
        /// Pieces that are not copied.
        left: usize,
    },
    /// Its request is in the device.
    Submitted(Request),
    /// The kernel has ended it.
    Ended,
}

/// A request of which the data is copied.
#[derive(Debug)]
pub(super) struct Copying {
    pub(super) request: Request,
    /// The memory of the data, in order.
    pub(super) memory: Vec<IoSlice>,
    /// Not all of it could be copied.
    pub(super) failed: bool,
}

impl Tag {
    /// `Fetching` → `Taken`, by a request of this class.
    pub(super) fn take(&mut self, class: Class) {
        assert!(matches!(self.state, TagState::Fetching), "{self:?}");
        self.class = class;
        self.state = TagState::Taken;
    }

    /// `Fetching` → `Ended`.
    pub(super) fn end(&mut self) {
        assert!(matches!(self.state, TagState::Fetching), "{self:?}");
        self.state = TagState::Ended;
    }

    /// `Taken` (a write) or `Submitted` (a read) → `Copying`; the memory is put into `empty`.
    pub(super) fn copy(&mut self, request: Request, empty: Vec<IoSlice>, pieces: usize) {
        assert!(
            matches!(self.state, TagState::Taken | TagState::Submitted(_)) && pieces > 0,
            "{self:?}"
        );
        let done = Copying {
            request,
            memory: empty,
            failed: false,
        };
        self.pieces.resize_with(pieces, || None);
        self.state = TagState::Copying { done, left: pieces };
    }

    /// One piece is copied, as a `whole` or not. After the last one: `Copying` → `Taken`, with the
    /// request and its memory.
    pub(super) fn copied(&mut self, piece: usize, slice: IoSlice, whole: bool) -> Option<Copying> {
        let TagState::Copying { done, left } = &mut self.state else {
            panic!("{self:?} copies nothing");
        };
        done.failed |= !whole;
        let before = self.pieces[piece].replace(slice);
        assert!(before.is_none(), "a piece is copied once");
        *left -= 1;
        if *left > 0 {
            return None;
        }
        done.memory.extend(self.pieces.drain(..).flatten());
        let TagState::Copying { done, .. } = std::mem::replace(&mut self.state, TagState::Taken)
        else {
            unreachable!("it was copying");
        };
        Some(done)
    }

    /// `Taken` → `Submitted`.
    pub(super) fn submit(&mut self, request: Request) {
        assert!(matches!(self.state, TagState::Taken), "{self:?}");
        self.state = TagState::Submitted(request);
    }

    /// The device has finished; returns the request. `Submitted` stays until it is copied or
    /// answered.
    pub(super) fn finished(&self) -> Request {
        let TagState::Submitted(request) = self.state else {
            panic!("{self:?} is not in the device");
        };
        request
    }

    /// `Taken` or `Submitted` → `Fetching`.
    pub(super) fn answer(&mut self) {
        assert!(
            matches!(self.state, TagState::Taken | TagState::Submitted(_)),
            "{self:?}"
        );
        self.state = TagState::Fetching;
    }
}

//! A queue and its tags.

use super::abi::{DESCRIPTOR_BYTES, Request};
use reactor::IoSlice;
use std::fs::File;
use std::io;
use switch::Class;

/// The descriptors of a queue's requests.
pub(super) trait Descriptions {
    /// Makes them readable, before the first request.
    ///
    /// # Errors
    /// The kernel refuses this process.
    fn map(&mut self, device: &File) -> io::Result<()>;

    /// Returns the descriptor of a tag's request. The kernel has signalled it, and changes it only
    /// after the request is completed.
    ///
    /// # Panics
    /// If the queue has no such tag.
    fn read(&self, tag: u16) -> [u8; DESCRIPTOR_BYTES];
}

/// A queue of a device.
#[derive(Debug)]
pub(super) struct Queue<D> {
    pub(super) number: u16,
    /// Maximum data bytes of a request.
    pub(super) request_bytes: usize,
    pub(super) descriptions: D,
    pub(super) tags: Vec<Tag>,
    /// Number of outstanding requests.
    pub(super) requests: usize,
}

impl<D> Queue<D> {
    /// Creates a queue; the kernel will hold the commands of all its `depth` tags.
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

/// A tag. Each method is one transition; any other transition is a caller's error and panics.
#[derive(Debug)]
pub(super) struct Tag {
    state: TagState,
    /// Class of its request.
    pub(super) class: Class,
    /// The memory of each copied piece, while data is being copied.
    pieces: Vec<Option<IoSlice>>,
}

/// The state of a tag, named by the event that it waits for.
#[derive(Debug)]
enum TagState {
    /// The kernel holds its command.
    Fetching,
    /// Its request waits for memory.
    Taken,
    /// The data of its request is being copied.
    Copying {
        done: Copying,
        /// Number of pieces not yet copied.
        left: usize,
    },
    /// Its request is in the device.
    Submitted(Request),
    /// The kernel has ended its command for good.
    Ended,
}

/// A request whose data is being copied.
#[derive(Debug)]
pub(super) struct Copying {
    pub(super) request: Request,
    /// The memory of the data, in order.
    pub(super) memory: Vec<IoSlice>,
    /// Some data could not be copied.
    pub(super) failed: bool,
}

impl Tag {
    /// `Fetching` → `Taken`, for a request of this class.
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

    /// `Taken` (a write) or `Submitted` (a read) → `Copying`; the memory is collected in `empty`.
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

    /// Records a copied piece; `whole` is false if it was incomplete. After the last piece:
    /// `Copying` → `Taken`; returns the request and its memory.
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

    /// Returns the request that the device has finished. The tag stays `Submitted` until it is
    /// copied or completed.
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

//! The software queues of all tenants of a thread, in one pool of places.
//!
//! A ring per tenant would take memory for the deepest queue of each of ten thousand tenants; here
//! a queue is two indices into the thread's places.

use crate::cost::PricedOperation;

/// No place.
const NONE: u32 = u32::MAX;

/// A queued request.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub(super) operation: PricedOperation,
    pub(super) units: u32,
    pub(super) item: T,
}

#[derive(Debug)]
struct Place<T> {
    next: u32,
    waiting: Option<Waiting<T>>,
}

/// One tenant's queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    head: u32,
    tail: u32,
    len: u32,
}

impl Queue {
    pub(super) const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        len: 0,
    };

    #[inline]
    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The places of a thread. Their memory is allocated at once, and first touched at the first use of
/// a place.
#[derive(Debug)]
pub(super) struct Places<T> {
    /// Places used so far.
    places: Vec<Place<T>>,
    count: usize,
    /// The first free place.
    free: u32,
    used: usize,
}

impl<T> Places<T> {
    /// Creates `count` free places.
    pub(super) fn new(count: u32) -> Self {
        let count = count.min(NONE - 1) as usize;
        Self {
            places: Vec::with_capacity(count),
            count,
            free: NONE,
            used: 0,
        }
    }

    /// Returns the number of requests in all queues.
    #[inline]
    pub(super) const fn used(&self) -> usize {
        self.used
    }

    /// Appends a request to a queue, or returns it if no place is free.
    #[inline]
    pub(super) fn push(&mut self, queue: &mut Queue, waiting: Waiting<T>) -> Result<(), T> {
        let place = |waiting| Place {
            next: NONE,
            waiting: Some(waiting),
        };
        let first = self.free;
        let at = if let Some(free) = self.places.get_mut(first as usize) {
            debug_assert!(free.waiting.is_none(), "a free place is empty");
            self.free = free.next;
            *free = place(waiting);
            first
        } else if self.places.len() < self.count {
            self.places.push(place(waiting));
            u32::try_from(self.places.len() - 1).expect("fewer than 2^32 places")
        } else {
            return Err(waiting.item);
        };
        self.used += 1;
        if queue.is_empty() {
            queue.head = at;
        } else {
            self.places[queue.tail as usize].next = at;
        }
        queue.tail = at;
        queue.len += 1;
        Ok(())
    }

    /// Takes the first request of a queue.
    #[inline]
    pub(super) fn pop(&mut self, queue: &mut Queue) -> Option<Waiting<T>> {
        let at = queue.head;
        let place = self.places.get_mut(at as usize)?;
        debug_assert!(place.waiting.is_some(), "a place in a queue has a request");
        debug_assert!(queue.len > 0, "a queue with a head is not empty");
        queue.head = place.next;
        queue.len -= 1;
        place.next = self.free;
        self.free = at;
        self.used -= 1;
        place.waiting.take()
    }

    /// Takes the first request of a queue that is `wanted`; visits the requests before it.
    pub(super) fn remove(
        &mut self,
        queue: &mut Queue,
        wanted: impl Fn(&T) -> bool,
    ) -> Option<Waiting<T>> {
        let (mut before, mut at) = (NONE, queue.head);
        loop {
            let place = self.places.get_mut(at as usize)?;
            let taken = place.waiting.take_if(|waiting| wanted(&waiting.item));
            let next = place.next;
            if taken.is_none() {
                (before, at) = (at, next);
                continue;
            }
            place.next = std::mem::replace(&mut self.free, at);
            self.used -= 1;
            queue.len -= 1;
            if queue.tail == at {
                queue.tail = before;
            }
            match self.places.get_mut(before as usize) {
                Some(before) => before.next = next,
                None => queue.head = next,
            }
            return taken;
        }
    }

    /// Returns the first request of a queue.
    #[inline]
    pub(super) fn first(&self, queue: &Queue) -> Option<&Waiting<T>> {
        self.places.get(queue.head as usize)?.waiting.as_ref()
    }

    /// Returns the requests of a queue, in order.
    #[inline]
    pub(super) fn iter(&self, queue: &Queue) -> impl Iterator<Item = &Waiting<T>> {
        let mut at = queue.head;
        std::iter::from_fn(move || {
            let place = self.places.get(at as usize)?;
            at = place.next;
            place.waiting.as_ref()
        })
    }
}

//! Completions that are held until a given time, for devices and layers with a delay.
//!
//! Owned by a channel, which reads [`next`](DelayQueue::next) before its core sleeps and fires due
//! completions in every turn. So delays are the same in virtual and in real time.

use crate::limits::LAYER_QUEUE_DEPTH;
use crate::request::Completion;
use base::{Slab, SlabKey, Time, TimerQueue};
use std::collections::VecDeque;

/// Completions that wait for their time.
#[derive(Debug)]
pub(crate) struct DelayQueue<T = Completion> {
    waiting: Slab<T>,
    /// Keys with the slot's number, so that equal times are ordered by age.
    timers: TimerQueue<(u64, SlabKey)>,
    order: u64,
    due: VecDeque<T>,
}

impl<T> DelayQueue<T> {
    pub(crate) fn new() -> Self {
        Self {
            waiting: Slab::with_capacity(LAYER_QUEUE_DEPTH),
            timers: TimerQueue::with_capacity(LAYER_QUEUE_DEPTH),
            order: 0,
            due: VecDeque::with_capacity(LAYER_QUEUE_DEPTH),
        }
    }

    /// Returns the number of completions, due or not.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.due.len()
    }

    /// Holds a completion until `until`; without a free slot it is not held.
    pub(crate) fn hold(&mut self, completion: T, until: Time) {
        match self.waiting.insert(completion) {
            Ok(key) => {
                self.timers.set(until, (self.order, key));
                self.order += 1;
            }
            Err(completion) => self.due.push_back(completion),
        }
    }

    /// Adds a completion that is due at once.
    pub(crate) fn pass(&mut self, completion: T) {
        self.due.push_back(completion);
    }

    /// Moves every completion whose time has come to the due ones.
    pub(crate) fn fire(&mut self, now: Time) {
        while let Some((_, key)) = self.timers.pop_due(now) {
            self.due.extend(self.waiting.remove(key));
        }
    }

    pub(crate) fn next(&self) -> Time {
        self.timers.next().unwrap_or(Time::NEVER)
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.due.pop_front()
    }
}

//! A queue that rarely holds more than one element.

use std::collections::VecDeque;

/// A queue that stores its oldest element inline.
///
/// The elements of a [`VecDeque`] cycle through all of its memory, so a rarely used queue causes
/// cache misses. Here a single element is stored with its owner, and further elements start at the
/// beginning of the memory again.
#[derive(Debug)]
pub struct ShortQueue<T> {
    /// The oldest element; `None` only if the queue is empty.
    first: Option<T>,
    rest: VecDeque<T>,
}

impl<T> ShortQueue<T> {
    /// An empty queue for `capacity` elements without further allocation.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            first: None,
            rest: VecDeque::with_capacity(capacity.saturating_sub(1)),
        }
    }

    /// Returns the number of elements.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    /// Returns true if there is no element.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Appends an element.
    #[inline]
    pub fn push_back(&mut self, element: T) {
        if self.first.is_none() {
            self.first = Some(element);
        } else {
            self.rest.push_back(element);
        }
    }

    /// Returns the oldest element.
    #[inline]
    #[must_use]
    pub const fn front(&self) -> Option<&T> {
        self.first.as_ref()
    }

    /// Removes the oldest element.
    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        let next = self.rest.pop_front();
        if self.rest.is_empty() {
            // The next element begins at the start of the memory again.
            self.rest.clear();
        }
        std::mem::replace(&mut self.first, next)
    }

    /// Returns the newest element.
    #[inline]
    #[must_use]
    pub fn back(&self) -> Option<&T> {
        self.rest.back().or(self.first.as_ref())
    }

    /// Removes the newest element.
    #[inline]
    pub fn pop_back(&mut self) -> Option<T> {
        self.rest.pop_back().or_else(|| self.first.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    #[test]
    fn it_is_a_queue() {
        let mut prng = Prng::from_seed(1);
        let (mut queue, mut model) = (ShortQueue::with_capacity(0), VecDeque::new());
        for number in 0..10_000 {
            match prng.below(4) {
                0 | 1 if model.len() < 6 => {
                    queue.push_back(number);
                    model.push_back(number);
                }
                2 => assert_eq!(queue.pop_back(), model.pop_back()),
                _ => assert_eq!(queue.pop_front(), model.pop_front()),
            }
            assert_eq!(
                (queue.len(), queue.is_empty()),
                (model.len(), model.is_empty())
            );
            assert_eq!((queue.front(), queue.back()), (model.front(), model.back()));
        }
    }

    #[test]
    fn what_it_was_made_for_fits_without_an_allocation() {
        let mut queue = ShortQueue::with_capacity(8);
        let before = queue.rest.capacity();
        for number in 0..8 {
            queue.push_back(number);
        }
        assert_eq!((queue.len(), queue.rest.capacity()), (8, before));
    }
}

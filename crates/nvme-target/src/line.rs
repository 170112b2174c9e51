//! A queue whose members may leave from any position: hosts may abort any number of waiting
//! commands, so a departure must not scan the queue.
//!
//! Each member has a number, and numbers grow towards the back, so a member is found by binary
//! search. It leaves a gap. Gaps are closed when they outnumber the members; so the memory is
//! proportional to the members, and a departure moves about one member on average.

use std::collections::VecDeque;

/// Number of gaps up to which the queue is not compacted.
const GAPS_MIN: usize = 16;

/// A queue of members with numbers.
#[derive(Debug)]
pub(crate) struct Line<T> {
    /// Members and gaps, each with its number; the first entry is a member.
    places: VecDeque<(u32, Option<T>)>,
    /// Number of members.
    len: usize,
    /// Number of accesses to members and gaps by compactions and full scans.
    #[cfg(test)]
    looks: usize,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self {
            places: VecDeque::new(),
            len: 0,
            #[cfg(test)]
            looks: 0,
        }
    }
}

impl<T> Line<T> {
    /// Returns the number of members.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of accesses to members and gaps that took linear time.
    #[cfg(test)]
    pub(crate) const fn looks(&self) -> usize {
        self.looks
    }

    /// Returns true if there are no members.
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a member at the back. Its number must follow those of all members; numbers wrap.
    pub(crate) fn push(&mut self, number: u32, member: T) {
        let last = self.places.back().map(|&(last, _)| last);
        debug_assert!(
            last.is_none_or(|last| number.wrapping_sub(last).cast_signed() > 0),
            "a member that is out of order is never found"
        );
        self.places.push_back((number, Some(member)));
        self.len += 1;
    }

    /// Returns the first member.
    pub(crate) fn first(&self) -> Option<&T> {
        self.places.front()?.1.as_ref()
    }

    /// Removes the first member; returns it with its number.
    pub(crate) fn pop(&mut self) -> Option<(u32, T)> {
        let (number, first) = self.places.pop_front()?;
        self.len -= usize::from(first.is_some());
        self.close_gaps();
        Some((number, first?))
    }

    /// Puts a member back at the front.
    pub(crate) fn give_back(&mut self, number: u32, member: T) {
        let first = self.places.front().map(|&(first, _)| first);
        debug_assert!(
            first.is_none_or(|first| first.wrapping_sub(number).cast_signed() > 0),
            "it was the first one"
        );
        self.places.push_front((number, Some(member)));
        self.len += 1;
    }

    /// Removes the member with this number if `wanted` returns true for it.
    pub(crate) fn remove(&mut self, number: u32, wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        let base = self.places.front()?.0;
        let after_first = |number: u32| number.wrapping_sub(base);
        let key = after_first(number);
        let found = self
            .places
            .binary_search_by_key(&key, |&(number, _)| after_first(number));
        let place = &mut self.places[found.ok()?].1;
        let member = place.take_if(|member| wanted(member))?;
        self.len -= 1;
        self.close_gaps();
        Some(member)
    }

    /// Removes every member for which `wanted` returns true, in order.
    pub(crate) fn take_all(&mut self, wanted: impl Fn(&T) -> bool, mut taken: impl FnMut(T)) {
        #[cfg(test)]
        {
            self.looks += self.places.len();
        }
        for (_, place) in &mut self.places {
            if let Some(member) = place.take_if(|member| wanted(member)) {
                self.len -= 1;
                taken(member);
            }
        }
        self.close_gaps();
    }

    /// Closes gaps at the front, and all gaps if there are many.
    fn close_gaps(&mut self) {
        while self
            .places
            .front()
            .is_some_and(|(_, place)| place.is_none())
        {
            self.places.pop_front();
        }
        let gaps = self.places.len() - self.len;
        if gaps > self.len.max(GAPS_MIN) {
            #[cfg(test)]
            {
                self.looks += self.places.len();
            }
            self.places.retain(|(_, place)| place.is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    /// Regression: each departure scanned all members, so N departures took quadratic time.
    #[test]
    fn a_member_leaves_without_a_look_at_the_others() {
        const MEMBERS: u32 = 10_000;
        let first = u32::MAX - MEMBERS / 2;
        let mut line = Line::default();
        let number = |member: u32| first.wrapping_add(member);
        for member in 0..MEMBERS {
            line.push(number(member), member);
        }
        // The newest, the oldest, and the members between them.
        for member in (0..MEMBERS).rev().step_by(2).chain((0..MEMBERS).step_by(2)) {
            assert_eq!(line.remove(number(member), |_| true), Some(member));
            assert_eq!(line.remove(number(member), |_| true), None);
        }
        assert!(line.is_empty() && line.looks <= 4 * MEMBERS as usize);
        // Members that come and go while the first one stays take no further memory.
        line.push(0, 0);
        for member in 1..MEMBERS {
            line.push(member, member);
            let before = line.remove(member - 1, |&member| member > 0);
            assert_eq!(before.is_some(), member > 1);
            assert!(line.places.len() <= 2 + GAPS_MIN + 2);
        }
        assert!(line.looks <= 8 * MEMBERS as usize);
    }

    #[test]
    fn members_keep_their_order_whatever_leaves() {
        let mut random = Prng::from_seed(7);
        let mut line = Line::default();
        let mut model: VecDeque<(u32, u32)> = VecDeque::new();
        for number in 0..20_000 {
            match random.below(6) {
                0..=2 => {
                    line.push(number, number);
                    model.push_back((number, number));
                }
                3 => {
                    let first = line.pop();
                    assert_eq!(first, model.pop_front());
                    if let Some((number, member)) = first.filter(|_| random.chance(1, 2)) {
                        line.give_back(number, member);
                        model.push_front((number, member));
                    }
                }
                4 if !model.is_empty() => {
                    let at = random.below(model.len() as u64);
                    let at = usize::try_from(at).expect("an index");
                    let (number, member) = model[at];
                    assert_eq!(line.remove(number, |_| false), None);
                    assert_eq!(line.remove(number, |_| true), Some(member));
                    model.remove(at);
                }
                _ if random.chance(1, 50) => {
                    let mut taken = Vec::new();
                    line.take_all(|member| member % 3 == 0, |member| taken.push(member));
                    let wanted = model.iter().filter(|(_, member)| member % 3 == 0);
                    assert!(taken.iter().eq(wanted.map(|(_, member)| member)));
                    model.retain(|(_, member)| member % 3 != 0);
                }
                _ => {}
            }
            assert_eq!(line.len(), model.len());
            assert_eq!(line.first(), model.front().map(|(_, member)| member));
        }
    }
}

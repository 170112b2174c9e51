//! Which of the names we know was meant by the one we were given.

/// The known name nearest to `given`, where one is near enough to be a slip of the finger:
/// at most a third of its characters (and at least two) inserted, removed, replaced or swapped.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_lowercase().replace('-', "_");
    let allowed = (given.chars().count() / 3).max(2);
    known
        .into_iter()
        .map(|name| {
            (
                distance(&given, &name.to_lowercase().replace('-', "_")),
                name,
            )
        })
        .filter(|(distance, name)| *distance <= allowed && *distance < name.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Optimal string alignment distance: edits of single characters, and swaps of neighbours.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, &l) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &r) in right.iter().enumerate() {
            let replaced = last[j] + usize::from(l != r);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && l == right[j - 1] && left[i - 1] == r {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_edits_and_swaps() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("fats", "fast"), 1);
        assert_eq!(distance("same", "same"), 0);
    }

    #[test]
    fn a_slip_finds_its_name_and_a_stranger_finds_none() {
        let known = ["queue_depth", "io_queues_per_controller", "connections"];
        assert_eq!(nearest("queue-depht", known), Some("queue_depth"));
        assert_eq!(nearest("conections", known), Some("connections"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("x", ["a"]), None);
    }
}

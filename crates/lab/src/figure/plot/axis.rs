//! The two axes of a panel.

use crate::figure::plan::Scale;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

/// Most names that fit under an axis.
const NAMES_SHOWN: usize = 13;

/// Names side by side: name `n` spans `n` to `n + 1`, and its label is in the middle.
#[derive(Clone, Debug)]
pub(super) struct Categories {
    pub(super) names: Vec<String>,
}

impl Categories {
    /// The middle of name `index`.
    pub(super) fn middle(index: usize) -> f64 {
        index as f64 + 0.5
    }

    /// Returns the name at position `place`.
    pub(super) fn name_at(&self, place: f64) -> String {
        let at = |(index, _): &(usize, &String)| (Self::middle(*index) - place).abs() < 0.5;
        let found = self.names.iter().enumerate().find(at);
        found.map_or_else(String::new, |(_, name)| name.clone())
    }

    /// Returns the label at `place`; with many names only some have one, so that they do not
    /// overlap.
    pub(super) fn label_at(&self, place: f64) -> String {
        let name = self.name_at(place);
        let every = self.names.len().div_ceil(NAMES_SHOWN);
        let index = self.names.iter().position(|other| *other == name);
        if index.is_some_and(|index| (index + 1).is_multiple_of(every)) {
            name
        } else {
            String::new()
        }
    }
}

impl Ranged for Categories {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        pixel(value / self.names.len() as f64, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        (0..self.names.len()).map(Self::middle).collect()
    }

    fn range(&self) -> Range<f64> {
        0.0..self.names.len() as f64
    }
}

impl ValueFormatter<f64> for Categories {
    fn format_ext(&self, value: &f64) -> String {
        self.name_at(*value)
    }
}

/// A numeric axis, linear from zero or logarithmic.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Numbers {
    scale: Scale,
    bottom: f64,
    top: f64,
    ticks: Vec<f64>,
}

impl Numbers {
    /// An axis with room for every one of `values`; values that are not positive have no place on a
    /// logarithmic one.
    pub(super) fn holding(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let positive = values.filter(|value| value.is_finite() && *value > 0.0);
        let (least, most) = positive.fold((f64::INFINITY, 0.0_f64), |(least, most), value| {
            (least.min(value), most.max(value))
        });
        if most == 0.0 {
            return Self::linear(1.0);
        }
        match scale {
            Scale::Linear => Self::linear(most),
            Scale::Log => Self::log(least, most),
        }
    }

    /// Steps of 1, 2 or 5 times a power of ten, about five of them.
    fn linear(most: f64) -> Self {
        let rough = most / 5.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * power)
            .find(|step| *step >= rough * 0.999)
            .unwrap_or(10.0 * power);
        let steps = (most / step).ceil().max(1.0);
        let ticks = (0..=12).map(|tick| f64::from(tick) * step);
        let top = steps * step;
        Self {
            scale: Scale::Linear,
            bottom: 0.0,
            top,
            ticks: ticks.take_while(|tick| *tick <= top * 1.001).collect(),
        }
    }

    /// Powers of ten around the values, with 2 and 5 between them if there are few.
    fn log(least: f64, most: f64) -> Self {
        let bottom = 10_f64.powf(least.log10().floor());
        let top = 10_f64.powf(most.log10().ceil()).max(bottom * 10.0);
        let decades = (top / bottom).log10().round();
        let factors: &[f64] = if decades <= 2.0 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let mut ticks = Vec::new();
        let mut power = bottom;
        while power <= top * 1.001 {
            ticks.extend(factors.iter().map(|factor| factor * power));
            power *= 10.0;
        }
        ticks.retain(|tick| *tick <= top * 1.001);
        Self {
            scale: Scale::Log,
            bottom,
            top,
            ticks,
        }
    }

    /// Position of the lower end of bars.
    pub(super) const fn bottom(&self) -> f64 {
        self.bottom
    }
}

impl Ranged for Numbers {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = match self.scale {
            Scale::Linear => value / self.top,
            Scale::Log => {
                let height = (self.top / self.bottom).ln();
                (value.max(self.bottom) / self.bottom).ln() / height
            }
        };
        pixel(part.clamp(0.0, 1.0), limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.bottom..self.top
    }
}

impl ValueFormatter<f64> for Numbers {
    fn format_ext(&self, value: &f64) -> String {
        plain(*value)
    }
}

/// Formats a tick without needless digits.
pub(super) fn plain(value: f64) -> String {
    let text = format!("{value:.6}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    short.to_owned()
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "a place in a picture has few digits"
)]
fn pixel(part: f64, (from, to): (i32, i32)) -> i32 {
    from + (part * f64::from(to - from)).round() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_axes_begin_at_zero_and_hold_everything() {
        for most in [0.003, 0.9, 1.0, 7.3, 49.9, 50.1, 123_456.0] {
            let axis = Numbers::holding(Scale::Linear, [most, most / 2.0].into_iter());
            assert_eq!(axis.bottom, 0.0);
            assert!(
                axis.top >= most && axis.top < 2.0 * most,
                "{most}: {axis:?}"
            );
            assert!((3..=9).contains(&axis.ticks.len()), "{most}: {axis:?}");
        }
    }

    #[test]
    fn logarithmic_axes_run_over_whole_decades() {
        let axis = Numbers::holding(Scale::Log, [23.0, 4_100.0].into_iter());
        assert_eq!(axis.range(), 10.0..10_000.0);
        assert_eq!(axis.ticks, [10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!(axis.map(&10.0, (300, 0)), 300);
        assert_eq!(axis.map(&100.0, (300, 0)), 200);
        assert_eq!(axis.map(&10_000.0, (300, 0)), 0);
        let one = Numbers::holding(Scale::Log, [100.0].into_iter());
        assert_eq!(one.range(), 100.0..1000.0);
    }

    #[test]
    fn of_many_names_some_are_shown() {
        let shown = |count: usize| -> Vec<String> {
            let axis = Categories {
                names: (1..=count).map(|name| name.to_string()).collect(),
            };
            let places = (0..count).map(|index| axis.label_at(Categories::middle(index)));
            places.filter(|label| !label.is_empty()).collect()
        };
        assert_eq!(shown(13).len(), 13);
        assert_eq!(
            shown(24),
            [
                "2", "4", "6", "8", "10", "12", "14", "16", "18", "20", "22", "24"
            ]
        );
    }

    #[test]
    fn an_axis_without_values_can_still_be_drawn() {
        for scale in [Scale::Linear, Scale::Log] {
            assert_eq!(Numbers::holding(scale, [].into_iter()).range(), 0.0..1.0);
        }
        assert_eq!(plain(0.5) + &plain(1000.0) + &plain(0.0), "0.510000");
    }
}

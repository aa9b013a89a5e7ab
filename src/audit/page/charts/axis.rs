//! From values to places on a drawing, and the round values that are written along it.

/// A stretch of values on a stretch of a drawing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// Values that do not differ get some room.
    pub(super) fn new((low, high): (f64, f64), (from, to): (f64, f64)) -> Scale {
        let high = if high > low { high } else { low + low.abs().max(1.0) };
        Scale { low, high, from, to }
    }

    /// Where a value stands; what lies outside stands at the end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let part = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + part * (self.to - self.from)
    }

    /// Whether a value lies on it.
    pub(super) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Round values on it: about as many as asked for, each a multiple of 1, 2 or 5 times a power of ten.
    pub(super) fn ticks(&self, about: usize) -> Vec<f64> {
        let rough = (self.high - self.low) / about.max(1) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|of| of * power);
        let step = step.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(rough);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last.min(first + 20)).map(|number| number as f64 * step).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ticks_are_round() {
        let ticks = |low, high| Scale::new((low, high), (0.0, 1.0)).ticks(5);
        assert_eq!(ticks(0.0, 1.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(ticks(-7.0, 12.0), [-5.0, 0.0, 5.0, 10.0]);
        assert_eq!(ticks(3.0, 3.0), [3.0, 4.0, 5.0, 6.0]);
    }

    proptest! {
        #[test]
        fn values_stay_on_the_drawing(low in -1e9f64..1e9, width in 0.0f64..1e9, value in -2e9f64..2e9) {
            let scale = Scale::new((low, low + width), (10.0, 470.0));
            let position = scale.at(value);
            prop_assert!((10.0..=470.0).contains(&position));
            prop_assert!(scale.ticks(5).len() <= 21);
        }
    }
}

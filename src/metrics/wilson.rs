//! How certain a share is: Wilson's score interval, which stays inside 0 to 1 and says something even
//! when nothing or everything succeeded.

use serde::{Deserialize, Serialize};

/// The standard normal distribution has 95 % of its mass within so many standard deviations.
const NORMAL_95: f64 = 1.959_963_984_540_054;

/// From the least to the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
}

/// The 95 % interval of a share; everything from 0 to 1 if nothing was tried.
pub fn wilson(successes: u64, trials: u64) -> Interval {
    if trials == 0 {
        return Interval { low: 0.0, high: 1.0 };
    }
    let count = trials as f64;
    let share = successes.min(trials) as f64 / count;
    let square = NORMAL_95 * NORMAL_95;
    let shrink = 1.0 + square / count;
    let centre = (share + square / (2.0 * count)) / shrink;
    let variance = share * (1.0 - share) / count + square / (4.0 * count * count);
    let half = NORMAL_95 * variance.sqrt() / shrink;
    // At the very ends the bound is the share itself, which rounding would miss by a last bit.
    let low = if successes == 0 { 0.0 } else { centre - half };
    let high = if successes >= trials { 1.0 } else { centre + half };
    Interval { low, high }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn intervals_are_those_of_scipy() {
        // scipy.stats.binomtest(successes, proposals).proportion_ci(0.95, method="wilson")
        let known = [
            (0, 1, 0.0, 0.793_450_685_622_76),
            (1, 1, 0.206_549_314_377_24, 1.0),
            (0, 10, 0.0, 0.277_532_799_862_89),
            (3, 10, 0.107_791_267_406_3, 0.603_221_852_538_85),
            (10, 10, 0.722_467_200_137_11, 1.0),
            (50, 100, 0.403_831_530_366, 0.596_168_469_634),
            (997, 1_000, 0.991_216_985_946_5, 0.998_979_216_118_86),
            (1, 1_000_000, 0.000_000_176_524_58, 0.000_005_664_911_8),
            (9_123_456, 10_000_000, 0.912_170_168_713_66, 0.912_520_714_484_74),
        ];
        for (successes, trials, low, high) in known {
            let found = wilson(successes, trials);
            assert!((found.low - low).abs() < 1e-12, "{successes} of {trials}: {found:?}");
            assert!((found.high - high).abs() < 1e-12, "{successes} of {trials}: {found:?}");
        }
    }

    #[test]
    fn nothing_tried_is_nothing_known() {
        assert_eq!(wilson(0, 0), Interval { low: 0.0, high: 1.0 });
    }

    proptest! {
        #[test]
        fn the_share_lies_inside(trials in 1u64..1_000_000_000, part in 0.0f64..=1.0) {
            let successes = (trials as f64 * part) as u64;
            let share = successes as f64 / trials as f64;
            let found = wilson(successes, trials);
            prop_assert!(0.0 <= found.low && found.low <= share);
            prop_assert!(share <= found.high && found.high <= 1.0);
        }
    }
}

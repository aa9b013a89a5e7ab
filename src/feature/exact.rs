//! Sums of floating-point numbers that do not depend on the order of the addends, so that statistics
//! are the same whatever the number of threads, files and batches.
//!
//! A sum is kept as one very wide integer: the exponent of an addend says where its 53 bits belong
//! (Kulisch's accumulator, in 32-bit limbs with room for carries). It is exact; rounding happens once,
//! when the sum is read.

/// Bits of a limb; the other half of its `i64` is room for carries.
const LIMB_BITS: u32 = 32;
/// Limbs that cover every finite `f64`, plus two for the spread of one addend and one for carries.
const LIMBS: usize = 2046 / LIMB_BITS as usize + 4;
/// Additions after which the carries are moved up, well before a limb can overflow.
const CARRY_EVERY: u32 = 1 << 29;
/// `f64` of the lowest bit: 2 to the power of this.
const LOWEST_EXPONENT: i32 = -1074;

/// An exact, order-independent, mergeable sum.
#[derive(Debug, Clone)]
pub(crate) struct ExactSum {
    limbs: [i64; LIMBS],
    pending: u32,
}

impl Default for ExactSum {
    fn default() -> Self {
        ExactSum { limbs: [0; LIMBS], pending: 0 }
    }
}

impl ExactSum {
    /// Adds a finite number; others are ignored.
    pub(crate) fn add(&mut self, number: f64) {
        let bits = number.to_bits();
        let exponent = ((bits >> 52) & 0x7ff) as u32;
        if number == 0.0 || exponent == 0x7ff {
            return;
        }
        let fraction = bits & ((1 << 52) - 1);
        let mantissa = if exponent == 0 { fraction } else { fraction | (1 << 52) };
        let position = exponent.max(1) - 1;
        let wide = u128::from(mantissa) << (position % LIMB_BITS);
        let first = (position / LIMB_BITS) as usize;
        let sign = if number < 0.0 { -1 } else { 1 };
        for (limb, shift) in self.limbs[first..first + 3].iter_mut().zip([0, 32, 64]) {
            *limb += sign * ((wide >> shift) as u32 as i64);
        }
        self.pending += 1;
        if self.pending >= CARRY_EVERY {
            self.carry();
        }
    }

    /// Adds the exact product of two numbers.
    pub(crate) fn add_product(&mut self, left: f64, right: f64) {
        let (product, error) = exact_product(left, right);
        self.add(product);
        self.add(error);
    }

    /// Adds another sum.
    pub(crate) fn merge(&mut self, other: &ExactSum) {
        let mut other = other.clone();
        other.carry();
        self.carry();
        for (limb, more) in self.limbs.iter_mut().zip(other.limbs) {
            *limb += more;
        }
        self.pending += 1;
    }

    /// Takes another sum away.
    pub(crate) fn subtract(&mut self, other: &ExactSum) {
        let mut other = other.clone();
        other.carry();
        self.carry();
        for (limb, less) in self.limbs.iter_mut().zip(other.limbs) {
            *limb -= less;
        }
        self.pending += 1;
    }

    /// The sum, rounded.
    pub(crate) fn value(&self) -> f64 {
        let (high, low) = self.pair();
        high + low
    }

    /// The sum as two numbers, the second making up for the rounding of the first.
    pub(super) fn pair(&self) -> (f64, f64) {
        let mut normal = self.clone();
        normal.carry();
        // After carrying, only the top limb can be negative, and then the whole sum is; its parts are
        // read off the opposite sum, whose limbs are small where this one's would cancel.
        if normal.limbs[LIMBS - 1] < 0 {
            normal.limbs.iter_mut().for_each(|limb| *limb = -*limb);
            let (high, low) = normal.pair();
            return (-high, -low);
        }
        let (mut high, mut low) = (0.0, 0.0);
        for (index, limb) in normal.limbs.iter().enumerate().rev() {
            let exponent = LOWEST_EXPONENT + (index as i32) * LIMB_BITS as i32;
            let part = scaled(*limb as f64, exponent);
            let sum: f64 = high + part;
            let back = sum - high;
            low += (high - (sum - back)) + (part - back);
            high = sum;
        }
        (high, low)
    }

    /// Moves what exceeds a limb up to the next.
    fn carry(&mut self) {
        for index in 0..LIMBS - 1 {
            let carry = self.limbs[index] >> LIMB_BITS;
            self.limbs[index] -= carry << LIMB_BITS;
            self.limbs[index + 1] += carry;
        }
        self.pending = 0;
    }
}

/// The mean of numbers and the sum of their squared deviations from it, from the exact sums of the numbers and of
/// their squares.
pub(crate) fn mean_and_squares(count: u64, sum: &ExactSum, squares: &ExactSum) -> (f64, f64) {
    let count = count as f64;
    let (high, low) = sum.pair();
    let mean = (high + low) / count;
    // Σ(x − mean)² = Σx² − 2·mean·Σx + n·mean², every term exact: no cancellation is left to fear.
    let mut deviations = squares.clone();
    deviations.add_product(-2.0 * mean, high);
    deviations.add_product(-2.0 * mean, low);
    let mut total = ExactSum::default();
    total.add_product(mean, count);
    let (high, low) = total.pair();
    deviations.add_product(mean, high);
    deviations.add_product(mean, low);
    (mean, deviations.value().max(0.0))
}

/// `number · 2^exponent`, in two steps so that neither factor leaves the range of `f64`.
fn scaled(number: f64, exponent: i32) -> f64 {
    let half = exponent / 2;
    number * 2f64.powi(half) * 2f64.powi(exponent - half)
}

/// A product and its rounding error (Dekker), without relying on a fused multiply-add.
fn exact_product(left: f64, right: f64) -> (f64, f64) {
    let split = |number: f64| {
        let shifted = number * 134_217_729.0;
        let high = shifted - (shifted - number);
        (high, number - high)
    };
    let product = left * right;
    let ((a, b), (c, d)) = (split(left), split(right));
    let error = ((a * c - product) + a * d + b * c) + b * d;
    (product, if error.is_finite() { error } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(numbers: &[f64]) -> ExactSum {
        let mut sum = ExactSum::default();
        numbers.iter().for_each(|number| sum.add(*number));
        sum
    }

    #[test]
    fn cancellation_leaves_what_is_left() {
        assert_eq!(sum(&[1e300, 1.0, -1e300]).value(), 1.0);
        assert_eq!(sum(&[5e-324, 5e-324]).value(), 1e-323);
        assert_eq!(sum(&[-3.5, 1.25]).value(), -2.25);
        assert_eq!(sum(&[f64::NAN, f64::INFINITY, 2.0]).value(), 2.0);
    }

    proptest! {
        #[test]
        fn the_order_and_grouping_do_not_matter(numbers in prop::collection::vec(-1e200f64..1e200, 0..60), cut in 0usize..60) {
            let cut = cut.min(numbers.len());
            let whole = sum(&numbers);
            let mut reversed: Vec<f64> = numbers.clone();
            reversed.reverse();
            let mut merged = sum(&numbers[cut..]);
            merged.merge(&sum(&numbers[..cut]));
            prop_assert_eq!(whole.pair(), sum(&reversed).pair());
            prop_assert_eq!(whole.pair(), merged.pair());
        }

        #[test]
        fn what_was_added_can_be_taken_away(numbers in prop::collection::vec(-1e200f64..1e200, 0..60), cut in 0usize..60) {
            let cut = cut.min(numbers.len());
            let mut rest = sum(&numbers);
            rest.subtract(&sum(&numbers[cut..]));
            prop_assert_eq!(rest.pair(), sum(&numbers[..cut]).pair());
        }

        #[test]
        fn integers_are_summed_exactly(numbers in prop::collection::vec(-1_000_000_000_000i64..1_000_000_000_000, 0..100)) {
            let floats: Vec<f64> = numbers.iter().map(|number| *number as f64).collect();
            prop_assert_eq!(sum(&floats).value(), numbers.iter().sum::<i64>() as f64);
        }

        #[test]
        fn products_are_exact(left in -1e9f64..1e9, right in -1e9f64..1e9) {
            let mut total = ExactSum::default();
            total.add_product(left, right);
            total.add_product(-left, right);
            prop_assert_eq!(total.value(), 0.0);
        }
    }
}

//! How plausible is a row: which share of held-out rows is at least as far from its nearest training rows?
//! High is plausible; 0 is farther than every held-out row, 0.5 is as far as the median one.
//!
//! Two rows differ by the sum over all features of
//!
//! - numbers: |Δ| in standard deviations, each number first cut at 8 of them and rounded to 1/256;
//! - categories: 0 if they are the same, else 1;
//! - nulls: a state of its own, 0 from a null and 1 from anything else.
//!
//! That is symmetric, and knows neither costs nor constraints. How far a row is from the data is the sum of the
//! differences to its five nearest reference rows: steadier than to one, and of a row that is itself among
//! them four others count. All of it is in whole numbers, so that neither the order of a sum nor the machine
//! makes a difference.
//!
//! Reference and held-out rows are the first of the training rows that are kept with a generator, which are in a
//! random order: up to 2,048 and, behind them, up to 1,024, or a quarter if there are fewer.

use std::sync::Arc;

use pulp::NullaryFnOnce;

use super::{NULL_POINT, PointColumn, Points, point};
use crate::encode::{Layout, Slots};
use crate::feature::{Cell, Rows};

/// Reference rows at most. More would cost more for every row; percentiles hardly change.
const REFERENCE_ROWS: usize = 2_048;
/// Held-out rows at most: percentiles to a tenth of a per cent.
const HELD_OUT_ROWS: usize = 1_024;
/// Of fewer rows a quarter is held out.
const HELD_OUT_PART: usize = 4;
/// Fewer training rows than this say nothing: there would be less than ten held-out rows.
pub const LEAST_POINTS: usize = 40;
/// Nearest rows whose differences are added up.
const NEAREST: usize = 5;

/// A standard deviation, or another category.
const UNIT: u16 = 256;
/// Where numbers are cut, in standard deviations.
const CUT: f32 = 8.0;
/// The highest number: twice the cut.
const HIGHEST: u16 = 16 * UNIT;
/// Features whose differences can be added up in 16 bits.
const GROUP: usize = (u16::MAX / HIGHEST) as usize;
/// Rows that are compared at once: their sums stay in the nearest cache.
const BLOCK: usize = 256;
/// Sums that are held against the nearest at once.
const AT_ONCE: usize = 32;

/// Says how plausible rows are.
#[derive(Debug, Clone)]
pub struct Plausibility {
    layout: Arc<Layout>,
    reference: ReferenceStates,
    /// How far held-out rows are from the reference rows, ascending.
    held_out: Vec<u64>,
}

/// The rows that others are compared with.
#[derive(Debug, Clone)]
struct ReferenceStates {
    len: usize,
    columns: Vec<StateColumn>,
}

/// A feature of the reference rows, in states: see [`state_of_number`] and [`point`].
#[derive(Debug, Clone)]
enum StateColumn {
    /// No null among them.
    Numbers(Vec<u16>),
    NumbersAndNulls(Vec<u16>),
    Codes(Vec<u16>),
}

impl Plausibility {
    /// Compares with these training rows, the first of them; none if there are too few.
    pub fn new(points: &Points, layout: &Arc<Layout>) -> Option<Plausibility> {
        if points.len < LEAST_POINTS {
            return None;
        }
        let held_out = (points.len / HELD_OUT_PART).min(HELD_OUT_ROWS);
        let len = (points.len - held_out).min(REFERENCE_ROWS);
        let column = |column: &PointColumn| StateColumn::new(column, len);
        let reference =
            ReferenceStates { len, columns: points.columns.iter().map(column).collect() };
        let far = |row: usize| {
            let states: Vec<u16> = points.columns.iter().map(|column| column.state(row)).collect();
            reference.distance(&states)
        };
        let mut held_out: Vec<u64> = (len..len + held_out).map(far).collect();
        held_out.sort_unstable();
        Some(Plausibility { layout: Arc::clone(layout), reference, held_out })
    }

    /// The share of held-out rows that are at least as far from the reference rows as a row is.
    pub fn of(&self, rows: &Rows, row: usize) -> f64 {
        let state = |(feature, slots): (usize, &Slots)| match (slots, rows.cell(feature, row)) {
            (Slots::Numeric(slots), Cell::Number(number)) => {
                state_of_number(slots.standardised(number))
            }
            (_, Cell::Code(code)) => point(code),
            (_, Cell::Number(_)) => NULL_POINT,
        };
        let states: Vec<u16> = self.layout.slots.iter().enumerate().map(state).collect();
        self.share(self.reference.distance(&states))
    }

    fn share(&self, distance: u64) -> f64 {
        let nearer = self.held_out.partition_point(|held_out| *held_out < distance);
        (self.held_out.len() - nearer) as f64 / self.held_out.len() as f64
    }
}

/// A standardised number as a whole one from 0 to [`HIGHEST`]; a NaN as [`NULL_POINT`].
fn state_of_number(number: f32) -> u16 {
    match number.is_nan() {
        true => NULL_POINT,
        false => ((number.clamp(-CUT, CUT) + CUT) * f32::from(UNIT)).round() as u16,
    }
}

impl PointColumn {
    fn state(&self, row: usize) -> u16 {
        match self {
            PointColumn::Numbers(numbers) => state_of_number(numbers[row]),
            PointColumn::Codes(codes) => codes[row],
        }
    }
}

impl StateColumn {
    fn new(column: &PointColumn, len: usize) -> StateColumn {
        let states: Vec<u16> = (0..len).map(|row| column.state(row)).collect();
        match column {
            PointColumn::Codes(_) => StateColumn::Codes(states),
            PointColumn::Numbers(_) if states.contains(&NULL_POINT) => {
                StateColumn::NumbersAndNulls(states)
            }
            PointColumn::Numbers(_) => StateColumn::Numbers(states),
        }
    }

    /// Adds how far rows from the given one on are from a state. A group's sums cannot overflow, and a check for
    /// it would keep the rows from being added up many at a time.
    #[inline(always)]
    fn add(&self, first: usize, state: u16, sums: &mut [u16]) {
        let (StateColumn::Numbers(all)
        | StateColumn::NumbersAndNulls(all)
        | StateColumn::Codes(all)) = self;
        let pairs = sums.iter_mut().zip(&all[first..]);
        match self {
            StateColumn::Numbers(_) if state != NULL_POINT => {
                pairs.for_each(|(sum, other)| *sum = sum.wrapping_add(other.abs_diff(state)));
            }
            StateColumn::NumbersAndNulls(_) if state != NULL_POINT => {
                pairs.for_each(|(sum, other)| {
                    let apart = other.abs_diff(state);
                    *sum = sum.wrapping_add(if *other == NULL_POINT { UNIT } else { apart });
                });
            }
            _ => pairs.for_each(|(sum, other)| {
                *sum = sum.wrapping_add(if *other == state { 0 } else { UNIT });
            }),
        }
    }
}

impl ReferenceStates {
    /// The sum of the differences between a row of such states and its nearest reference rows.
    fn distance(&self, states: &[u16]) -> u64 {
        pulp::Arch::new().dispatch(Distance { reference: self, states })
    }

    #[inline(always)]
    fn distance_here(&self, states: &[u16]) -> u64 {
        let mut nearest = [u32::MAX; NEAREST];
        for first in (0..self.len).step_by(BLOCK) {
            let rows = BLOCK.min(self.len - first);
            let mut sums = [0u32; BLOCK];
            let groups = self.columns.chunks(GROUP).zip(states.chunks(GROUP));
            for (columns, states) in groups {
                let mut part = [0u16; BLOCK];
                for (column, state) in columns.iter().zip(states) {
                    column.add(first, *state, &mut part[..rows]);
                }
                for (sum, part) in sums.iter_mut().zip(part) {
                    *sum = sum.wrapping_add(u32::from(part));
                }
            }
            keep_nearest(&mut nearest, &sums[..rows]);
        }
        nearest.iter().map(|sum| u64::from(*sum)).sum()
    }
}

/// A distance, as a type: a closure would not be inlined, and lose the wider instructions.
struct Distance<'a> {
    reference: &'a ReferenceStates,
    states: &'a [u16],
}

impl NullaryFnOnce for Distance<'_> {
    type Output = u64;

    #[inline(always)]
    fn call(self) -> u64 {
        self.reference.distance_here(self.states)
    }
}

/// Puts the smallest sums among the nearest, which are ascending.
#[inline(always)]
fn keep_nearest(nearest: &mut [u32; NEAREST], sums: &[u32]) {
    for sums in sums.chunks(AT_ONCE) {
        // Not `any`, which would stop at the first and so go one by one.
        let farthest = nearest[NEAREST - 1];
        if !sums.iter().fold(false, |near, sum| near | (*sum < farthest)) {
            continue;
        }
        for sum in sums {
            if *sum < nearest[NEAREST - 1] {
                let position = nearest.partition_point(|known| known <= sum);
                nearest.copy_within(position..NEAREST - 1, position + 1);
                nearest[position] = *sum;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::encode::{CategoricalSlots, NumericSlots};
    use crate::feature::{Cells, NULL_CODE, UNSEEN_CODE};

    /// By the definition: every pair by itself, in fractions, sorted.
    fn by_hand(points: &Points, rows: std::ops::Range<usize>, row: &[u16]) -> u64 {
        let apart = |column: &PointColumn, other: usize, state: u16| match column {
            _ if column.state(other) == state => 0.0,
            PointColumn::Codes(_) => 1.0,
            PointColumn::Numbers(_) if [column.state(other), state].contains(&NULL_POINT) => 1.0,
            PointColumn::Numbers(_) => {
                (f64::from(column.state(other)) - f64::from(state)).abs() / 256.0
            }
        };
        let distance = |other: usize| -> f64 {
            points.columns.iter().zip(row).map(|(column, state)| apart(column, other, *state)).sum()
        };
        let mut all: Vec<f64> = rows.map(distance).collect();
        all.sort_by(f64::total_cmp);
        (256.0 * all[..NEAREST].iter().sum::<f64>()) as u64
    }

    /// Columns of a table: numbers with a null now and then, and codes.
    fn points(rows: usize, numbers: usize, codes: usize, seed: u64) -> Points {
        let mut state = seed | 1;
        let mut draw = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as f32 / 2f32.powi(31)
        };
        let mut number = |nulls: f32| if draw() < nulls { f32::NAN } else { 20.0 * draw() - 10.0 };
        let mut columns: Vec<PointColumn> = (0..numbers)
            .map(|column| {
                let nulls = if column % 2 == 1 { 0.1 } else { 0.0 };
                PointColumn::Numbers((0..rows).map(|_| number(nulls)).collect())
            })
            .collect();
        columns.extend((0..codes).map(|_| {
            let code = |number: f32| if number > 9.0 { NULL_POINT } else { number.abs() as u16 };
            PointColumn::Codes((0..rows).map(|_| code(number(0.0))).collect())
        }));
        Points { len: rows, columns, decisions: vec![0.0; rows], exact: Vec::new() }
    }

    fn layout(points: &Points) -> Arc<Layout> {
        let slots = |column: &PointColumn| match column {
            PointColumn::Numbers(_) => Slots::Numeric(NumericSlots {
                value: 0,
                null: Some(1),
                mean: 100.0,
                std: 50.0,
                cut: f32::MAX,
            }),
            PointColumn::Codes(_) => Slots::Categorical(CategoricalSlots {
                first: 0,
                values: 10,
                null: Some(10),
                unseen: None,
            }),
        };
        Arc::new(Layout { width: 0, slots: points.columns.iter().map(slots).collect() })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn sums_are_those_of_the_definition(
            rows in 5..700usize, numbers in 0..40usize, codes in 0..20usize, seed: u64,
        ) {
            let points = points(rows, numbers, codes, seed);
            let column = |column: &PointColumn| StateColumn::new(column, rows);
            let columns = points.columns.iter().map(column).collect();
            let reference = ReferenceStates { len: rows, columns };
            let others = self::points(3, numbers, codes, seed ^ 7);
            for row in 0..3 {
                let states: Vec<u16> = others.columns.iter().map(|c| c.state(row)).collect();
                prop_assert_eq!(reference.distance(&states), by_hand(&points, 0..rows, &states));
            }
        }

        #[test]
        fn differences_are_symmetric(numbers in 0..40usize, codes in 0..20usize, seed: u64) {
            let points = points(2, numbers, codes, seed);
            let one = |row: usize| -> Vec<u16> { points.columns.iter().map(|c| c.state(row)).collect() };
            let apart = |from: usize, to: usize| {
                let columns = points.columns.iter().map(|column| match column {
                    PointColumn::Numbers(all) => PointColumn::Numbers(vec![all[to]; NEAREST]),
                    PointColumn::Codes(all) => PointColumn::Codes(vec![all[to]; NEAREST]),
                });
                let columns = columns.map(|column| StateColumn::new(&column, NEAREST)).collect();
                ReferenceStates { len: NEAREST, columns }.distance(&one(from))
            };
            prop_assert_eq!(apart(0, 1), apart(1, 0));
            prop_assert_eq!(apart(0, 0), 0);
        }
    }

    #[test]
    fn held_out_rows_are_as_plausible_as_their_rank_among_themselves() {
        let points = points(400, 3, 2, 5);
        let plausibility = Plausibility::new(&points, &layout(&points)).expect("enough rows");
        assert_eq!((plausibility.reference.len, plausibility.held_out.len()), (300, 100));
        let mut shares: Vec<f64> =
            plausibility.held_out.iter().map(|distance| plausibility.share(*distance)).collect();
        assert!(shares.iter().rev().is_sorted(), "the farther, the less plausible");
        shares.dedup();
        assert_eq!((shares[0], plausibility.share(0)), (1.0, 1.0));
        assert_eq!(plausibility.share(u64::MAX), 0.0);
        assert!((0.4..0.6).contains(&plausibility.share(plausibility.held_out[50])));
    }

    #[test]
    fn of_many_rows_the_first_are_compared_with_and_the_next_are_held_out() {
        let points = points(5_000, 1, 0, 5);
        let plausibility = Plausibility::new(&points, &layout(&points)).expect("enough rows");
        assert_eq!(plausibility.reference.len, REFERENCE_ROWS);
        let mut by_hand: Vec<u64> = (REFERENCE_ROWS..REFERENCE_ROWS + HELD_OUT_ROWS)
            .map(|row| by_hand(&points, 0..REFERENCE_ROWS, &[points.columns[0].state(row)]))
            .collect();
        by_hand.sort_unstable();
        assert_eq!(plausibility.held_out, by_hand);
        let few = self::points(LEAST_POINTS - 1, 1, 0, 5);
        assert!(Plausibility::new(&few, &layout(&few)).is_none());
    }

    #[test]
    fn cells_of_rows_are_compared_as_the_kept_rows_were_written() {
        let mut points = points(100, 2, 1, 9);
        // Well within where numbers are cut, as standardised ones are: what is cut is far then.
        for column in &mut points.columns {
            if let PointColumn::Numbers(numbers) = column {
                numbers.iter_mut().for_each(|number| *number /= 5.0);
            }
        }
        let plausibility = Plausibility::new(&points, &layout(&points)).expect("enough rows");
        let plain = |number: f32| f64::from(number) * 50.0 + 100.0;
        let [PointColumn::Numbers(one), PointColumn::Numbers(two), PointColumn::Codes(codes)] =
            &points.columns[..]
        else {
            unreachable!("two numbers and a category")
        };
        let code = |code: &u16| if *code == NULL_POINT { NULL_CODE } else { u32::from(*code) };
        let rows = Rows {
            len: 100,
            cells: vec![
                Cells::Numbers(one.iter().map(|number| plain(*number)).collect()),
                Cells::Numbers(two.iter().map(|number| plain(*number)).collect()),
                Cells::Codes(codes.iter().map(code).collect()),
            ],
        };
        for row in 75..100 {
            let states: Vec<u16> = points.columns.iter().map(|c| c.state(row)).collect();
            let share = plausibility.share(plausibility.reference.distance(&states));
            assert!((plausibility.of(&rows, row) - share).abs() < 0.05, "row {row}");
        }
        let far = Rows {
            len: 1,
            cells: vec![
                Cells::Numbers(vec![1e300]),
                Cells::Numbers(vec![-1e300]),
                Cells::Codes(vec![UNSEEN_CODE]),
            ],
        };
        assert_eq!(plausibility.of(&far, 0), 0.0);
    }
}

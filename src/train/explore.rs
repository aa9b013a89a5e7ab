//! Trials beside what the actor does.

use std::sync::Arc;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::encode::Dense;

/// Share of proposals in which some of the changes are undone …
const UNDONE: f64 = 0.15;
/// … and in which a few values of a row of the target class stand in for all of them …
const GRAFTED: f64 = 0.1;
/// … so many at most.
const MOST_GRAFTS: usize = 3;

/// Lets some rows try less than the actor does: some changes are undone, back to the original, or a few values of a
/// row of the target class put in the place of all of them. Whether a change is needed shows where it is missing.
/// `originals` and `others` say which training rows these are.
pub(super) fn vary(
    decoded: &mut Dense,
    training: &Dense,
    (originals, others): (&[u32], &[i64]),
    random: &mut ChaCha8Rng,
) {
    let layout = Arc::clone(&decoded.layout);
    let rows = originals.iter().zip(others);
    for ((original, other), values) in rows.zip(decoded.values.chunks_exact_mut(layout.width)) {
        let (original, other) = (training.row(*original as usize), training.row(*other as usize));
        let lot: f64 = random.random_range(0.0..1.0);
        if lot < UNDONE {
            for slots in &layout.slots {
                if random.random_bool(0.5) {
                    let range = slots.range();
                    values[range.clone()].copy_from_slice(&original[range]);
                }
            }
        } else if lot < UNDONE + GRAFTED {
            values.copy_from_slice(original);
            for _ in 0..random.random_range(1..=MOST_GRAFTS) {
                let range = layout.slots[random.random_range(0..layout.slots.len())].range();
                values[range.clone()].copy_from_slice(&other[range]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::encode::{CategoricalSlots, Layout, NumericSlots, Slots};

    #[test]
    fn trials_are_the_actor_s_with_changes_undone_or_grafts_on_the_own_row() {
        let number = |value| {
            Slots::Numeric(NumericSlots { value, null: None, mean: 0.0, std: 1.0, cut: f32::MAX })
        };
        let block =
            Slots::Categorical(CategoricalSlots { first: 3, values: 2, null: None, unseen: None });
        let layout =
            Arc::new(Layout { width: 5, slots: vec![number(0), number(1), number(2), block] });
        let rows = 2_000;
        let filled = |value: f32| Dense {
            rows,
            width: 5,
            values: vec![value; 5 * rows],
            layout: Arc::clone(&layout),
        };
        let mut training = filled(0.0);
        training.values[5..10].fill(2.0);
        let mut tried = filled(1.0);
        let (originals, others) = (vec![0; rows], vec![1; rows]);
        vary(&mut tried, &training, (&originals, &others), &mut ChaCha8Rng::seed_from_u64(4));
        let (mut undone, mut grafted) = (0, 0);
        for row in 0..rows {
            let row = tried.row(row);
            assert_eq!(row[3], row[4], "a category is kept whole");
            let has = |value: f32| row.contains(&value);
            assert!(!(has(1.0) && has(2.0)), "{row:?}");
            grafted += usize::from(has(2.0));
            undone += usize::from(has(0.0) && !has(2.0));
            let grafts = row[..4].iter().filter(|value| **value == 2.0).count();
            assert!(grafts <= MOST_GRAFTS, "{row:?}");
        }
        let share = |count: usize| count as f64 / rows as f64;
        assert!((share(grafted) - GRAFTED).abs() < 0.03, "{grafted}");
        assert!((share(undone) - UNDONE).abs() < 0.04, "{undone}");
    }
}

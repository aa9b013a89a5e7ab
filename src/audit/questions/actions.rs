//! Which actions help most: the same change made to every refused row (FACTS), and a few actions that together help as
//! many as can be (GLANCE).

use std::collections::BTreeMap;

use super::ask::{Copy, DerivedPolicy, ask};
use super::budget::Allotment;
use super::candidates::{Action, MOST_ACTIONS, candidates};
use super::groups::{count, mean};
use super::sample::{AuditSample, Chosen, SampledGroup};
use super::{Asker, NamedTable};
use crate::error::Result;
use crate::feature::Edits;
use crate::output::{action_sets_schema, actions_schema};
use crate::report::ReportColumns;

/// Rows among which actions are chosen, at most.
pub(super) const CHOSEN_ON: usize = 20_000;
/// Actions that are chosen together, at most.
const MOST_CHOSEN: usize = 5;
/// An action counts as a choice for a group if it flips at least this share of it.
pub(super) const CHOICE: f64 = 0.5;
/// A further action must flip at least this share of the rows that none before it does.
const LEAST_GAIN: f64 = 0.01;

/// What an action comes to for the rows of a sample.
struct Effects {
    /// Whether the row's constraints let it be done.
    applicable: Vec<bool>,
    /// What it costs where it flips the decision; infinite elsewhere.
    costs: Vec<f64>,
}

/// Questions about a row that all actions are tried on, at most …
pub(super) const PER_ROW: u64 = MOST_ACTIONS as u64 + 1;
/// … and about one that only the chosen ones are.
pub(super) const PER_FURTHER_ROW: u64 = MOST_CHOSEN as u64 + 1;

/// The tables of the section.
///
/// # Errors
/// When the model as a whole fails.
pub(super) fn actions(
    asker: &Asker<'_>,
    refused: &Chosen,
    allotted: &Allotment,
) -> Result<Vec<NamedTable>> {
    let chosen_on = (CHOSEN_ON as u64).min(allotted.rows()) as usize;
    let explainer = asker.explainer.as_ref();
    let mut actions_table = ReportColumns::default();
    let mut sets = ReportColumns::default();
    let first = refused.slice(0, chosen_on).inspect(explainer, asker.table)?;
    if let Some(first) = first {
        let left = allotted.questions.saturating_sub(chosen_on as u64 * PER_ROW) / PER_FURTHER_ROW;
        let further = refused.slice(chosen_on, left.min(refused.len() as u64) as usize);
        let further = further.inspect(explainer, asker.table)?;
        for target in targets(&first) {
            let found = candidates(&first, explainer, target);
            let effects = effects(asker, (&first, target), &found)?;
            let chosen = choose(&effects, &rows_of(&first, target));
            let tried = TriedActions { actions: &found, effects: &effects, chosen: &chosen };
            tried.tell((asker, &first, target), &mut actions_table);
            let set: Vec<Action> = chosen.iter().map(|index| found[*index].clone()).collect();
            let verified = match &further {
                Some(further) => Some((further, self::effects(asker, (further, target), &set)?)),
                None => None,
            };
            let parts = (&first, tried.of_set());
            let further = verified.as_ref().map(|(rows, of)| (*rows, of.iter().collect()));
            let parts: Vec<GroupEffects<'_>> = std::iter::once(parts).chain(further).collect();
            tell_sets((asker, target), (&tried, &parts), &mut sets);
        }
    }
    Ok(vec![
        ("actions", actions_table.finish(actions_schema())?),
        ("action_sets", sets.finish(action_sets_schema())?),
    ])
}

/// Some rows, and what the chosen actions come to for them.
type GroupEffects<'a> = (&'a AuditSample, Vec<&'a Effects>);

/// Actions that were tried.
struct TriedActions<'a> {
    actions: &'a [Action],
    effects: &'a [Effects],
    /// Indexes of the chosen ones, in the order of their choice.
    chosen: &'a [usize],
}

fn targets(sample: &AuditSample) -> Vec<u32> {
    let mut targets = sample.rows.target_numbers.clone();
    targets.sort_unstable();
    targets.dedup();
    targets
}

fn rows_of(sample: &AuditSample, target: u32) -> Vec<u32> {
    let of_target = |row: &u32| sample.rows.target_numbers[*row as usize] == target;
    (0..sample.len() as u32).filter(of_target).collect()
}

/// What actions come to for rows of a target; nothing for others.
fn effects(
    asker: &Asker<'_>,
    (sample, target): (&AuditSample, u32),
    actions: &[Action],
) -> Result<Vec<Effects>> {
    let explainer = asker.explainer.as_ref();
    let rows = rows_of(sample, target);
    let edits = |action: &Action| -> Vec<Option<Edits>> {
        rows.iter().map(|row| action.edits((sample, explainer), *row as usize)).collect()
    };
    let effect = |action: &Action| {
        let edits = edits(action);
        let copies = rows
            .iter()
            .zip(&edits)
            .filter_map(|(row, edits)| Some(Copy { row: *row, edits: edits.clone()? }));
        let copies: Vec<Copy> = copies.collect();
        let predictions = ask(explainer, (&sample.rows, DerivedPolicy::Follow), &copies)?;
        let mut applicable = vec![false; sample.len()];
        let mut costs = vec![f64::INFINITY; sample.len()];
        for (copy, prediction) in copies.iter().zip(predictions) {
            let row = copy.row as usize;
            applicable[row] = true;
            if prediction.reached {
                let original = |feature: usize| sample.rows.originals.cell(feature, row);
                costs[row] = explainer.cost(&copy.edits, original);
            }
        }
        Ok(Effects { applicable, costs })
    };
    actions.iter().map(effect).collect()
}

impl Effects {
    fn flips(&self, row: usize) -> bool {
        self.costs[row].is_finite()
    }
}

/// Actions that together flip as many rows as can be had one after the other; of equally good ones the cheapest.
fn choose(effects: &[Effects], rows: &[u32]) -> Vec<usize> {
    let mut chosen = Vec::new();
    let mut left: Vec<u32> = rows.to_vec();
    while chosen.len() < MOST_CHOSEN {
        let gain = |of: &Effects| {
            let costs = left.iter().map(|row| of.costs[*row as usize]);
            costs
                .filter(|cost| cost.is_finite())
                .fold((0u64, 0.0), |sum, cost| (sum.0 + 1, sum.1 + cost))
        };
        let gains = effects.iter().map(gain).enumerate();
        let best = gains
            .min_by(|(_, one), (_, other)| other.0.cmp(&one.0).then(one.1.total_cmp(&other.1)));
        let Some((index, (flipped, _))) = best else { break };
        if flipped == 0 || (flipped as f64) < LEAST_GAIN * rows.len() as f64 {
            break;
        }
        left.retain(|row| !effects[index].flips(*row as usize));
        chosen.push(index);
    }
    chosen
}

impl<'a> TriedActions<'a> {
    fn of_set(&self) -> Vec<&'a Effects> {
        self.chosen.iter().map(|index| &self.effects[*index]).collect()
    }

    /// A row for each group and action.
    fn tell(
        &self,
        (asker, sample, target): (&Asker<'_>, &AuditSample, u32),
        columns: &mut ReportColumns,
    ) {
        let of_target = |group: &SampledGroup| group.target == target;
        for group in sample.groups().into_iter().filter(of_target) {
            let rows = group.rows.len() as u64;
            for (index, (action, of)) in self.actions.iter().zip(self.effects).enumerate() {
                let flipped = count(&group.rows, |row| of.flips(row));
                asker.names.begin(columns, &group);
                columns.count(index as u64 + 1);
                columns.text(Some(&action.text(asker.explainer.schema())));
                columns.text(Some(action.size));
                columns.count(rows);
                columns.count(count(&group.rows, |row| of.applicable[row]));
                columns.count(flipped);
                asker.names.share(columns, flipped, rows);
                let costs = group.rows.iter().map(|row| of.costs[*row as usize]);
                let shown = asker.names.shows(rows);
                columns.number(mean(costs.filter(|cost| cost.is_finite())).filter(|_| shown));
                let position = self.chosen.iter().position(|chosen| *chosen == index);
                columns.maybe_count(position.map(|position| position as u64 + 1));
            }
        }
    }

    /// How many actions are a choice for a group.
    fn choices(&self, rows: &[u32]) -> u64 {
        let flips = |of: &&Effects| count(rows, |row| of.flips(row)) as f64;
        let enough = |of: &&Effects| flips(of) >= CHOICE * rows.len() as f64;
        self.effects.iter().filter(enough).count() as u64
    }
}

/// A group's rows, by what the chosen actions cost them at least.
#[derive(Default)]
struct GroupCosts {
    costs: Vec<f64>,
    tried: Vec<u32>,
}

/// A row for each group: what the chosen actions come to together.
fn tell_sets(
    (asker, target): (&Asker<'_>, u32),
    (tried, parts): (&TriedActions<'_>, &[GroupEffects<'_>]),
    columns: &mut ReportColumns,
) {
    let least = |effects: &[&Effects], row: usize| {
        effects.iter().map(|of| of.costs[row]).fold(f64::INFINITY, f64::min)
    };
    let mut grouped: BTreeMap<(Option<usize>, Option<String>), GroupCosts> = BTreeMap::new();
    for (part, (sample, effects)) in parts.iter().enumerate() {
        for group in sample.groups().into_iter().filter(|group| group.target == target) {
            let costs = group.rows.iter().map(|row| least(effects, *row as usize));
            let known = grouped.entry((group.attribute, group.value)).or_default();
            known.costs.extend(costs);
            // All actions were tried on the rows of the first part only.
            if part == 0 {
                known.tried = group.rows;
            }
        }
    }
    for ((attribute, value), GroupCosts { costs, tried: rows_tried }) in grouped {
        let group = SampledGroup { target, attribute, value, rows: rows_tried };
        let rows = costs.len() as u64;
        let flipped: Vec<f64> = costs.into_iter().filter(|cost| cost.is_finite()).collect();
        let shown = asker.names.shows(rows);
        asker.names.begin(columns, &group);
        columns.count(rows);
        columns.count(tried.chosen.len() as u64);
        columns.count(flipped.len() as u64);
        asker.names.share(columns, flipped.len() as u64, rows);
        columns.number(mean(flipped.into_iter()).filter(|_| shown));
        columns.count(tried.actions.len() as u64);
        let shown = asker.names.shows(group.rows.len() as u64);
        columns.maybe_count(shown.then(|| tried.choices(&group.rows)));
        columns.number(Some(CHOICE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects(costs: &[f64]) -> Effects {
        Effects { applicable: vec![true; costs.len()], costs: costs.to_vec() }
    }

    #[test]
    fn actions_are_chosen_for_the_rows_that_none_before_them_flips() {
        let no = f64::INFINITY;
        let all = [
            effects(&[1.0, 1.0, 1.0, no, no]),
            effects(&[0.5, 0.5, 0.5, no, no]),
            effects(&[no, 0.1, 0.1, 0.1, no]),
            effects(&[no, no, no, no, no]),
        ];
        let rows: Vec<u32> = (0..5).collect();
        // The second flips as many as the first for less; the third as many for the least.
        assert_eq!(choose(&all, &rows), [2, 1]);
        assert_eq!(choose(&all, &[0, 1, 2]), [1]);
        assert!(choose(&all[3..], &rows).is_empty());
    }
}

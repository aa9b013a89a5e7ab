//! What no method must ever do, over random schemas, tables, models and budgets; and what each must find where the
//! counterfactual is plain.

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use proptest::prelude::*;

use super::sparsity::PosthocSparsity;
use super::spread::spreads;
use crate::constrain::tests::random::case;
use crate::explain::refine::tests::{Ground, explained, part_and_whole};
use crate::explain::refine::{Change, Changes, Outcomes, Proposal, QueryCache, difference};
use crate::explain::{ExplainStats, Worker, take};
use crate::feature::Cell;
use crate::job::{ComparedMethod, DiceSpec, ExplainJob, ExplainMethod, Refine, SparsitySearch};
use crate::metrics::{Source, Status};

/// All methods. The generator's proposals are given here: what a network says depends on the others of its batch by
/// rounding.
const METHODS: [ExplainMethod; 6] = [
    ExplainMethod::Cfrl,
    ExplainMethod::Search,
    ExplainMethod::Nearest,
    ExplainMethod::DiceRandom,
    ExplainMethod::DiceGenetic,
    ExplainMethod::Lore,
];

const RIVALS: [(ExplainMethod, Source); 4] = [
    (ExplainMethod::Nearest, Source::Neighbour),
    (ExplainMethod::DiceRandom, Source::DiceRandom),
    (ExplainMethod::DiceGenetic, Source::DiceGenetic),
    (ExplainMethod::Lore, Source::Lore),
];

fn job(method: ExplainMethod, mode: Refine, budget: u32) -> ExplainJob {
    let mut job = ExplainJob::usual(mode);
    job.method = method;
    job.refine.queries_per_row = budget;
    job.refine.min_score = Some(0.0);
    job
}

fn check(ground: &Ground, job: &ExplainJob, found: &Outcomes) -> Result<(), TestCaseError> {
    let (case, budget) = (&ground.case, job.refine.queries_per_row);
    let worker: Worker = ground.worker(job);
    // Training rows are given as they are, whatever step most of their values have.
    let broken = worker.shared.constraints.violations(&found.rows, &case.rows, &case.bounds);
    prop_assert!(broken.is_empty(), "{broken:?}");
    let said = ground.predict(&found.rows);
    for (finding, said) in found.findings.iter().zip(said) {
        prop_assert!(finding.queries <= budget, "asked {} times", finding.queries);
        prop_assert_eq!(finding.valid, said, "not what the model says");
        prop_assert_eq!(finding.valid, finding.status == Status::Solved);
    }
    prop_assert_eq!(found.rules.len(), found.findings.len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn methods_keep_their_promises(
        (columns, rows, seed) in case(),
        budget in prop_oneof![1..6u32, Just(30u32), Just(300u32)],
        search in prop_oneof![
            Just(None),
            Just(Some(SparsitySearch::Linear)),
            Just(Some(SparsitySearch::Binary)),
            Just(Some(SparsitySearch::Off)),
        ],
        hard_labels in any::<bool>(),
    ) {
        let ground = Ground::new(&columns, rows, seed);
        for (method, source) in RIVALS {
            let mut plain = job(method, Refine::Off, budget);
            plain.dice = DiceSpec { hard_labels, sparsity: search };
            let found = ground.refine(&plain);
            check(&ground, &plain, &found)?;
            for (finding, rule) in found.findings.iter().zip(&found.rules) {
                prop_assert!(!finding.valid || finding.source == Some(source));
                prop_assert_eq!(finding.valid && rule.is_none(), finding.valid && source != Source::Lore);
            }
            plain.refine.mode = Refine::Full;
            let refined = ground.refine(&plain);
            check(&ground, &plain, &refined)?;
            for (after, before) in refined.findings.iter().zip(&found.findings) {
                prop_assert!(after.valid || !before.valid, "refinement lost a counterfactual");
            }
        }
    }

    #[test]
    fn what_a_request_gets_depends_on_its_own_row((columns, rows, seed) in case()) {
        let ground = Ground::new(&columns, rows, seed);
        let some: Vec<u32> = (0..rows as u32).rev().step_by(2).collect();
        let batch = ground.some(&some);
        for method in METHODS {
            let worker = ground.worker(&job(method, refine_of(method), 100));
            let whole = explained(&worker, &ground.batch, &ground.generated);
            let part = explained(&worker, &batch, &ground.generated.take(&some));
            let constraints = &ground.case.constraints;
            let all = difference(constraints, &whole.rows, &ground.case.rows);
            let lists = difference(constraints, &part.rows, &batch.originals);
            for (index, (changes, row)) in lists.iter().zip(&some).enumerate() {
                let row = *row as usize;
                prop_assert_eq!(changes, &all[row], "{:?}", method);
                prop_assert_eq!(part.findings[index].queries, whole.findings[row].queries);
                prop_assert_eq!(part.findings[index].status, whole.findings[row].status);
                prop_assert_eq!(&part.rules[index], &whole.rules[row]);
            }
        }
    }
}

/// What a job's methods write about rows, a line each, in order.
fn lines(worker: &Worker, rows: &RecordBatch) -> Vec<String> {
    let table = worker.explain(rows, &mut ExplainStats::default()).expect("explained");
    let options = FormatOptions::default();
    let columns = table.columns().iter();
    let columns: Vec<ArrayFormatter<'_>> = columns
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).expect("a column"))
        .collect();
    let line = |row| columns.iter().map(|of| format!("{}|", of.value(row))).collect::<String>();
    let mut lines: Vec<String> = (0..table.num_rows()).map(line).collect();
    lines.sort_unstable();
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_method_keeps_constraints_and_budgets(
        (columns, rows, seed) in case(),
        budget in prop_oneof![1..6u32, Just(40u32), Just(300u32)],
    ) {
        let ground = Ground::new(&columns, rows, seed);
        for method in METHODS {
            let job = job(method, refine_of(method), budget);
            check(&ground, &job, &ground.refine(&job))?;
        }
    }

    #[test]
    fn tables_depend_on_what_rows_say_alone((columns, rows, seed) in case()) {
        let ground = Ground::new(&columns, rows, seed);
        let table = &ground.case.batch;
        let order: Vec<u32> = (0..rows as u32).rev().step_by(2)
            .chain((0..rows as u32).rev().skip(1).step_by(2)).collect();
        let (first, second) = order.split_at(rows / 3);
        for method in METHODS.into_iter().filter(|method| *method != ExplainMethod::Cfrl) {
            let mut job = job(method, refine_of(method), 60);
            job.samples = 2;
            let worker = ground.worker(&job);
            let whole = lines(&worker, table);
            let permuted = take(table, &order).expect("rows");
            prop_assert_eq!(&lines(&worker, &permuted), &whole, "{:?} in another order", method);
            let mut parts = Vec::new();
            for part in [first, second].into_iter().filter(|part| !part.is_empty()) {
                parts.extend(lines(&worker, &take(table, part).expect("rows")));
            }
            parts.sort_unstable();
            prop_assert_eq!(&parts, &whole, "{:?} in other batches", method);
        }
    }

    #[test]
    fn a_method_says_the_same_beside_others((columns, rows, seed) in case()) {
        let ground = Ground::new(&columns, rows, seed);
        let table = &ground.case.batch;
        let compared = |method: &ExplainMethod| {
            ComparedMethod { method: *method, refine: refine_of(*method) }
        };
        let mut together = job(METHODS[5], refine_of(METHODS[5]), 60);
        together.compare = METHODS[1..5].iter().map(compared).collect();
        let mut alone: Vec<String> = METHODS[1..]
            .iter()
            .flat_map(|method| lines(&ground.worker(&job(*method, refine_of(*method), 60)), table))
            .collect();
        alone.sort_unstable();
        prop_assert_eq!(lines(&ground.worker(&together), table), alone);
    }
}

/// How much a method's counterfactuals are refined by default.
fn refine_of(method: ExplainMethod) -> Refine {
    if method.is_rival() { Refine::Off } else { Refine::Full }
}

/// The first number of the first row.
fn part(found: &Outcomes) -> f64 {
    match found.rows.cell(0, 0) {
        Cell::Number(number) => number,
        Cell::Code(_) => unreachable!("a number"),
    }
}

#[test]
fn every_method_crosses_a_single_border() {
    // `part` must pass 20, and may not pass `whole`.
    let ground = part_and_whole((2.0, 55.0), 20.0);
    for (method, _) in RIVALS {
        let found = ground.refine(&job(method, Refine::Off, 400));
        assert!(found.findings[0].valid, "{method:?}");
        assert!((20.0..=60.0).contains(&part(&found)), "{method:?}: {}", part(&found));
    }
}

#[test]
fn lore_stops_at_the_border_that_its_rule_names() {
    let ground = part_and_whole((2.0, 55.0), 20.0);
    let found = ground.refine(&job(ExplainMethod::Lore, Refine::Off, 1000));
    let rule = found.rules[0].as_deref().expect("a rule");
    let bound = rule.strip_prefix("part > ").and_then(|rest| rest.split(' ').next());
    let bound: f64 = bound.expect(rule).parse().expect(rule);
    // The neighbourhood has values of training rows, 2 and 50.
    assert!((2.0..50.0).contains(&bound), "{rule}");
    assert!((part(&found) - bound).abs() <= 1.0, "{} for {rule}", part(&found));
}

#[test]
fn hard_labels_hide_how_far_the_target_is() {
    // With probabilities the population is drawn to the border before it has crossed it.
    let ground = part_and_whole((2.0, 55.0), 20.0);
    let mut job = job(ExplainMethod::DiceGenetic, Refine::Off, 400);
    let soft = ground.refine(&job);
    job.dice.hard_labels = true;
    let hard = ground.refine(&job);
    assert!(soft.findings[0].valid && hard.findings[0].valid);
    assert_ne!(part(&soft), part(&hard), "the loss differs, and so does what is bred");
}

#[test]
fn small_changes_go_back_after_the_fact() {
    // Two training values, 2 and 50: a change of up to 24 is small.
    let ground = part_and_whole((2.0, 55.0), 20.0);
    let worker = ground.worker(&job(ExplainMethod::DiceRandom, Refine::Off, 400));
    let spreads = spreads(&worker.shared.refiner);
    let moved = |search: SparsitySearch, from: f64| {
        let changes = Changes::from_slice(&[Change { feature: 0, cell: Cell::Number(from) }]);
        let mut cache = QueryCache::new(&worker, &ground.batch).expect("a cache");
        let proposal = Proposal { request: 0, changes: changes.clone() };
        cache.predict_unprobed(&[proposal]).expect("predicted");
        let mut found = vec![Some(changes), None];
        PosthocSparsity::new(search, &spreads).apply(&mut cache, &mut found).expect("moved");
        match found[0].as_deref() {
            Some([Change { cell: Cell::Number(number), .. }]) => *number,
            other => unreachable!("{other:?}"),
        }
    };
    // Numbers keep to whole ones, as in training rows; 20 itself does not do.
    for from in [21.0, 23.0, 26.0] {
        assert_eq!(moved(SparsitySearch::Linear, from), 21.0, "from {from}");
        assert_eq!(moved(SparsitySearch::Binary, from), 21.0, "from {from}");
        assert_eq!(moved(SparsitySearch::Off, from), from);
    }
    assert_eq!(moved(SparsitySearch::Binary, 27.0), 27.0, "not a small change");
}

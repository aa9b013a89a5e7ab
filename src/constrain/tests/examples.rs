//! Conditions and post-processing worked by hand, and the reference's known pitfalls.

use arrow::array::{
    Date32Array, Decimal128Array, Float32Array, Float64Array, Int32Array, Int64Array, StringArray,
    TimestampSecondArray, UInt8Array,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::constrain::conditions::beta;
use crate::feature::{Cell, RowWriter, UNSEEN_CODE};

fn numeric(keys: &str) -> String {
    format!("[[feature]]\nname = \"age\"\nkind = \"numeric\"\n{keys}\n")
}

fn ages(keys: &str, ages: Vec<f64>) -> Case {
    Case::parse(&numeric(keys), vec![("age", shared(Float64Array::from(ages)))])
}

fn settled(case: &Case, proposed: f64) -> Vec<f64> {
    numbers_of(&case.settle(&[proposed]), 0).to_vec()
}

fn assert_close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (left, right) in found.iter().zip(expected) {
        assert!((left - right).abs() < 1e-5, "{found:?}, expected {expected:?}");
    }
}

#[test]
fn conditions_are_what_the_paper_says() {
    // "Allowing the age to increase by up to 5 years … p_min = 0, p_max = 0.1, assuming 10 to 60".
    let seen = || vec![10.0, 30.0, 60.0];
    let conditions = |keys: &str| ages(keys, seen()).widest().row(1).to_vec();
    assert_close(&conditions("change = \"increase\"\nlimit = { up = 5 }"), &[0.0, 0.1]);
    assert_eq!(conditions(""), [-1.0, 1.0]);
    assert_eq!(conditions("change = \"increase\""), [0.0, 1.0]);
    assert_eq!(conditions("change = \"decrease\""), [-1.0, 0.0]);
    assert_eq!(conditions("change = \"never\""), [0.0, 0.0]);
    assert_close(&conditions("limit = { down = 0.2, unit = \"share\" }"), &[-0.2, 1.0]);
    assert_close(&conditions("limit = { down = 500, up = 10 }"), &[-1.0, 0.2]);
    assert_close(&conditions("range = [0, 100]\nlimit = { up = 10 }"), &[-1.0, 0.1]);
    assert_eq!(conditions("range = [30, 30]"), [0.0, 0.0]);
}

#[test]
fn bounds_of_a_row_narrow_its_condition() {
    let column = |numbers: Vec<Option<f64>>| shared(Float64Array::from(numbers));
    let case = Case::parse(
        &numeric("limit = { up = 25 }"),
        vec![
            ("age", column(vec![Some(10.0), Some(30.0), Some(60.0)])),
            ("age__min", column(vec![None, Some(25.0), Some(70.0)])),
            ("age__max", column(vec![Some(20.0), None, Some(80.0)])),
        ],
    );
    let widest = case.widest();
    assert_close(widest.row(0), &[-1.0, 0.2]);
    assert_close(widest.row(1), &[-0.1, 0.5]);
    assert_close(widest.row(2), &[0.0, 0.4]);
    // The last row's bounds leave nothing of its range, so it stays as it is.
    assert_eq!(settled(&case, 1000.0), [20.0, 55.0, 60.0]);
    assert_eq!(settled(&case, -1000.0), [10.0, 25.0, 60.0]);
    let taken = case.bounds.take(&[1, 0]);
    let conditions = case.constraints.widest(&case.rows.take(&[1, 0]), &taken);
    assert_eq!(conditions, widest.take(&[1, 0]));
}

#[test]
fn masks_hold_what_a_row_may_become() {
    let text = r#"
        [[feature]]
        name = "job"
        kind = "categorical"
        values = ["clerk", "smith", "judge"]
        allowed = ["clerk", "smith"]
        nulls = "carry"
        unseen = "carry"
        [[feature]]
        name = "status"
        kind = "categorical"
        values = ["married", "unmarried", "divorced"]
        change = "never"
    "#;
    let jobs = vec![Some("judge"), Some("clerk"), None, Some("poet")];
    let lists =
        [Some(vec![Some("smith")]), Some(vec![]), None, Some(vec![Some("?"), Some("clerk")])];
    let lists = text_lists(lists.into_iter());
    let case = Case::parse(
        text,
        vec![
            ("job", shared(StringArray::from(jobs))),
            ("status", shared(StringArray::from(vec!["married"; 4]))),
            ("job__allowed", lists),
        ],
    );
    let widest = case.constraints.widest(&case.rows, &RowBounds::none());
    assert_eq!(widest.width, 8);
    assert_eq!(widest.row(0), [1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    assert_eq!(widest.row(1), [1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    assert_eq!(widest.row(2), [0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
    assert_eq!(widest.row(3), [1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    let narrowed = case.widest();
    assert_eq!(narrowed.row(0)[..5], [0.0, 1.0, 1.0, 0.0, 0.0]);
    assert_eq!(narrowed.row(1)[..5], [1.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(narrowed.row(2)[..5], [0.0, 0.0, 0.0, 1.0, 0.0]);
    assert_eq!(narrowed.row(3)[..5], [1.0, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!(case.constraints.changeable(), ["job"]);
}

#[test]
fn numbers_are_clipped_to_the_condition_and_the_range() {
    let case = ages("grid = \"none\"", vec![10.0, 30.0, 60.0]);
    let conditions =
        Conditions { rows: 3, width: 2, values: vec![-0.1, 0.2, -0.1, 0.2, -0.1, 0.2] };
    let settle =
        |proposed| numbers_of(&case.process(&case.output(&[proposed]), &conditions), 0).to_vec();
    for (found, expected) in settle(1e9).iter().zip([20.0, 40.0, 60.0]) {
        assert!((found - expected).abs() < 1e-5, "{found}, expected {expected}");
    }
    for (found, expected) in settle(-1e9).iter().zip([10.0, 25.0, 55.0]) {
        assert!((found - expected).abs() < 1e-5, "{found}, expected {expected}");
    }
    assert!((settle(33.25)[1] - 33.25).abs() < 1e-5);
}

#[test]
fn rounding_does_not_break_a_direction() {
    // Truncation did, by one (issue 549 of the reference implementation).
    let whole = |change: &str| {
        let column = shared(Int32Array::from(vec![17, 45, 90]));
        Case::parse(&numeric(&format!("change = \"{change}\"")), vec![("age", column)])
    };
    for proposed in [45.6, 45.4, 45.5, 44.6, 46.5] {
        let rising = settled(&whole("increase"), proposed);
        assert!(rising[1] >= 45.0 && rising[1].fract() == 0.0, "{proposed}: {rising:?}");
        assert_eq!(rising[2], 90.0, "the greatest stays at least");
        let falling = settled(&whole("decrease"), proposed);
        assert!(falling[1] <= 45.0 && falling[0] <= 17.0, "{proposed}: {falling:?}");
    }
    assert_eq!(settled(&whole("increase"), 46.5)[1], 46.0, "half to even");
}

#[test]
fn an_underflowing_softmax_changes_nothing_that_is_masked() {
    // P3: with logits this far apart the softmax of every allowed value is zero in single precision.
    let text = "[[feature]]\nname = \"job\"\nkind = \"categorical\"\nvalues = [\"a\", \"b\", \"c\"]\n\
                change = \"never\"\n[[feature]]\nname = \"home\"\nkind = \"categorical\"\n\
                values = [\"x\", \"y\", \"z\"]\nallowed = [\"y\", \"z\"]\n";
    let case = Case::parse(
        text,
        vec![
            ("job", shared(StringArray::from(vec!["b"]))),
            ("home", shared(StringArray::from(vec!["z"]))),
        ],
    );
    let mut output = case.output(&[]);
    output.values = vec![1e9, -1e9, 3e8, 5e8, -200.0, -300.0];
    let settled = case.process(&output, &case.widest());
    assert_eq!(codes_of(&settled, 0), [1]);
    assert_eq!(codes_of(&settled, 1), [1]);
    for nothing in [f32::NAN, f32::NEG_INFINITY] {
        output.values = vec![nothing; 6];
        let settled = case.process(&output, &case.widest());
        assert_eq!((codes_of(&settled, 0), codes_of(&settled, 1)), (&[1][..], &[2][..]));
    }
}

#[test]
fn a_number_outside_its_range_is_not_pulled_back_against_its_constraints() {
    // P5: the reference clips such a row into the range even if the feature may not change.
    for (change, expected) in [("never", 70.0), ("increase", 70.0), ("decrease", 55.0)] {
        let case = ages(&format!("range = [10, 60]\nchange = \"{change}\""), vec![30.0, 70.0]);
        assert_eq!(settled(&case, 55.0)[1], expected, "{change}");
    }
    let case = ages("range = [10, 60]", vec![30.0, 70.0]);
    assert_eq!(settled(&case, 69.0)[1], 70.0, "nearer to the own number than to the range");
    assert_eq!(settled(&case, 61.0)[1], 60.0);
    assert_eq!(settled(&case, f64::INFINITY)[1], 70.0);
    assert_eq!(settled(&case, f64::NEG_INFINITY)[1], 10.0, "as far as the schema lets it");
}

#[test]
fn an_unknown_category_stays_or_moves_to_a_listed_one() {
    // P7: an all-zero block under an immutable feature became the first category.
    let case = |keys: &str| {
        let text = format!(
            "[[feature]]\nname = \"job\"\nkind = \"categorical\"\nvalues = [\"a\", \"b\"]\n{keys}\n"
        );
        Case::parse(&text, vec![("job", shared(StringArray::from(vec!["poet"])))])
    };
    let settle = |case: &Case, logits: &[f32]| {
        let mut output = case.output(&[]);
        output.values = logits.to_vec();
        let settled = case.process(&output, &case.widest());
        codes_of(&settled, 0)[0]
    };
    assert_eq!(settle(&case("change = \"never\""), &[5.0, 4.0]), UNSEEN_CODE);
    assert_eq!(
        settle(&case("change = \"never\"\nunseen = \"carry\""), &[5.0, 4.0, 0.0]),
        UNSEEN_CODE
    );
    assert_eq!(settle(&case("unseen = \"carry\""), &[5.0, 4.0, 9.0]), UNSEEN_CODE);
    assert_eq!(settle(&case("unseen = \"carry\""), &[5.0, 6.0, 0.0]), 1);
    assert_eq!(settle(&case(""), &[f32::NAN, f32::NAN]), UNSEEN_CODE);
    assert_eq!(settle(&case("allowed = [\"b\"]"), &[5.0, 4.0]), 1);
}

#[test]
fn steps_count_from_the_own_number() {
    let case = ages("range = [0, 100]\nstep = 0.1\nlimit = { up = 0.3 }", vec![0.7, 50.05]);
    let risen = settled(&case, 100.0);
    assert!((risen[0] - 1.0).abs() < 1e-12 && (risen[1] - 50.35).abs() < 1e-12, "{risen:?}");
    let term = |original: Vec<i64>| {
        let column = shared(Int64Array::from(original));
        Case::parse(&numeric("range = [6, 120]\nstep = 6"), vec![("age", column)])
    };
    assert_eq!(settled(&term(vec![12, 13, 119]), 118.0), [120.0, 115.0, 119.0]);
    assert_eq!(settled(&term(vec![12, 13, 119]), 0.0), [6.0, 7.0, 11.0]);
    let quarters = Case::parse(
        &numeric("range = [0, 10]\nstep = 0.25"),
        vec![("age", shared(Int32Array::from(vec![5])))],
    );
    assert_eq!(settled(&quarters, 6.4), [6.0], "four quarters make a whole number");
}

#[test]
fn a_share_of_the_range_reaches_the_whole_number_it_means() {
    // 0.29 · 100 = 28.999999999999996, and 0.7 in single precision is less than 0.7.
    let case = |limit: &str| {
        let column = shared(Int32Array::from(vec![0, 50]));
        Case::parse(
            &numeric(&format!("range = [0, 100]\nlimit = {{ {limit} }}")),
            vec![("age", column)],
        )
    };
    assert_eq!(settled(&case("up = 0.29, unit = \"share\""), 1000.0), [29.0, 79.0]);
    assert_eq!(settled(&case("up = 7"), 1000.0), [7.0, 57.0]);
    assert_eq!(settled(&case("down = 0.29, unit = \"share\""), -1000.0), [0.0, 21.0]);
}

#[test]
fn columns_get_numbers_that_they_can_hold() {
    let single = Case::parse(
        &numeric("range = [0.1, 0.7]"),
        vec![("age", shared(Float32Array::from(vec![0.5f32])))],
    );
    for proposed in [0.0, 1.0] {
        let found = settled(&single, proposed)[0];
        assert_eq!(found, f64::from(found as f32));
        assert!((0.1..=0.7).contains(&found), "{found}");
    }
    let decimals = Decimal128Array::from(vec![70, 30]).with_precision_and_scale(6, 2);
    let decimals = decimals.expect("two digits");
    let case = Case::parse(
        &numeric("range = [0, 9]\nlimit = { up = 0.1 }"),
        vec![("age", shared(decimals))],
    );
    assert_eq!(settled(&case, 5.0), [0.8, 0.4], "0.7 + 0.1 is a little less than 0.8");
    let bytes = shared(UInt8Array::from(vec![250]));
    let case = Case::parse(&numeric("range = [-10, 1000]"), vec![("age", bytes)]);
    assert_eq!(settled(&case, 999.0), [255.0]);
    assert_eq!(settled(&case, -9.0), [0.0]);
    let fraction = ages("type = \"integer\"\nrange = [0, 10]", vec![2.5]);
    assert_eq!(settled(&fraction, 3.2), [3.0]);
    let narrow = ages("type = \"integer\"\nrange = [2.2, 2.8]", vec![2.5]);
    assert_eq!(settled(&narrow, 2.7), [2.5]);
}

#[test]
fn bounds_in_other_units_of_time_are_converted() {
    let text = numeric("");
    let day = 86_400;
    let case = Case::parse(
        &text,
        vec![
            ("age", shared(TimestampSecondArray::from(vec![day, 5 * day, 9 * day]))),
            ("age__max", shared(Date32Array::from(vec![Some(3), Some(6), None]))),
        ],
    );
    let expected = [3.0, 6.0, 9.0].map(|days| days * 86_400.0);
    assert_eq!(settled(&case, 1e9), expected);
}

#[test]
fn beta_draws_have_their_mean_and_variance() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let draws: Vec<f64> = (0..400_000).map(|_| f64::from(beta(&mut random))).collect();
    let mean = draws.iter().sum::<f64>() / draws.len() as f64;
    let variance = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / draws.len() as f64;
    // Four standard errors: 4·√(0.05/n) and about 4·0.05·√(1.2/n).
    assert!((mean - 0.5).abs() < 1.5e-3, "{mean}");
    assert!((variance - 0.05).abs() < 4e-4, "{variance}");
    let below = draws.iter().filter(|draw| **draw < 0.25).count() as f64 / draws.len() as f64;
    assert!((below - 0.15625).abs() < 3e-3, "3·(1/4)² − 2·(1/4)³ = 0.15625, not {below}");
}

#[test]
fn drawn_masks_are_fair_and_draws_leave_the_immutable_alone() {
    let text = "[[feature]]\nname = \"age\"\nkind = \"numeric\"\nchange = \"never\"\n\
                [[feature]]\nname = \"job\"\nkind = \"categorical\"\nvalues = [\"a\", \"b\", \"c\"]\n\
                [[feature]]\nname = \"sex\"\nkind = \"categorical\"\nvalues = [\"f\", \"m\"]\n\
                change = \"never\"\n";
    let count = 40_000;
    let case = Case::parse(
        text,
        vec![
            ("age", shared(Float64Array::from_iter_values((0..count).map(f64::from)))),
            ("job", shared(StringArray::from(vec!["b"; count as usize]))),
            ("sex", shared(StringArray::from(vec!["f"; count as usize]))),
        ],
    );
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let drawn = case.constraints.draw(&case.widest(), &case.rows, &mut random);
    let share = |index: usize| {
        (0..drawn.rows).map(|row| f64::from(drawn.row(row)[index])).sum::<f64>() / f64::from(count)
    };
    assert!((share(2) - 0.5).abs() < 0.01 && (share(4) - 0.5).abs() < 0.01);
    assert_eq!([share(0), share(1), share(3), share(5), share(6)], [0.0, 0.0, 1.0, 1.0, 0.0]);
}

#[test]
fn ranges_are_given_in_standardised_units() {
    let case = ages("range = [0, 50]", vec![10.0, 30.0]);
    let range = case.constraints.numeric_ranges()[0];
    assert_eq!(range, NumericRange { slot: 0, low: -2.0, high: 3.0 });
}

#[test]
fn features_that_cannot_change_are_not_changeable() {
    let changeable = |keys: &str| !ages(keys, vec![10.0, 30.0]).constraints.changeable().is_empty();
    assert!(changeable(""));
    assert!(changeable("step = 20"));
    assert!(!changeable("change = \"never\""));
    assert!(!changeable("range = [5, 5]"));
    assert!(!changeable("step = 21"));
    assert!(!changeable("limit = { up = 0, down = 0 }"));
    let category = |keys: &str| {
        let text = format!("[[feature]]\nname = \"job\"\nkind = \"categorical\"\n{keys}\n");
        let case = Case::parse(&text, vec![("job", shared(StringArray::from(vec!["a"])))]);
        !case.constraints.changeable().is_empty()
    };
    assert!(category("values = [\"a\", \"b\"]\nallowed = [\"a\"]"));
    assert!(!category("values = [\"a\", \"b\"]\nallowed = []"));
    assert!(!category("values = [\"a\"]"));
    assert!(category("values = [\"a\"]\nunseen = \"carry\""));
}

#[test]
fn violations_are_named() {
    let text = "[[feature]]\nname = \"age\"\nkind = \"numeric\"\nrange = [0, 100]\nstep = 2\n\
                change = \"increase\"\nlimit = { up = 10 }\n\
                [[feature]]\nname = \"job\"\nkind = \"categorical\"\nvalues = [\"a\", \"b\"]\n\
                allowed = [\"a\"]\n";
    let case = Case::parse(
        text,
        vec![
            ("age", shared(Int32Array::from(vec![50; 6]))),
            ("job", shared(StringArray::from(vec!["a"; 6]))),
            ("age__max", shared(Int32Array::from(vec![None, None, None, None, Some(51), None]))),
        ],
    );
    let numbers = vec![48.0, 62.0, 53.0, 101.0, 52.0, 52.5];
    let broken = Rows {
        len: 6,
        cells: vec![Cells::Numbers(numbers), Cells::Codes(vec![0, 1, 0, UNSEEN_CODE, 0, 0])],
    };
    let found = case.constraints.violations(&broken, &case.rows, &case.bounds);
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    for expected in [
        "row 0: `age` fell from 50 to 48",
        "row 1: `age` went from 50 to 62, beyond its limit",
        "row 2: `age` went from 50 to 53, not in steps of 2",
        "row 3: `age` is 101, outside 0 to 100",
        "row 4: `age` is 52, outside the row's own -inf to 51",
        "row 5: `age` is 52.5, which its column cannot hold",
        "row 1: `job` became `b`, which nothing may move to",
        "row 3: `job` became null or unseen",
    ] {
        assert!(found.iter().any(|found| found == expected), "{expected} not in {found:#?}");
    }
    assert!(case.constraints.violations(&case.rows, &case.rows, &case.bounds).is_empty());
}

#[test]
fn numbers_beyond_the_precision_of_doubles_stay_as_they_are() {
    let large = (1i64 << 53) + 1;
    let text = numeric("change = \"increase\"") + "[[feature]]\nname = \"b\"\nkind = \"numeric\"\n";
    let case = Case::parse(
        &text,
        vec![
            ("age", shared(Int64Array::from(vec![large, 5]))),
            ("b", shared(Float64Array::from(vec![-0.0, 1.0]))),
        ],
    );
    let settled = case.process(&case.encoder.encode_rows(&case.rows), &case.widest());
    let writer = RowWriter::new(&case.schema);
    let written = writer.write(&settled, &case.rows, &case.batch).expect("written");
    for (written, original) in written.columns().iter().zip(case.batch.columns()) {
        assert!(Arc::ptr_eq(written, original));
    }
}

/// Of two categories that do not go together the one goes of which the network is less sure.
#[test]
fn a_broken_rule_is_repaired_by_what_the_network_takes_for_likeliest() {
    let text = "[[feature]]\nname = \"soil\"\nkind = \"categorical\"\nvalues = [\"clay\", \"sand\"]\n\
                [[feature]]\nname = \"area\"\nkind = \"categorical\"\nvalues = [\"hill\", \"coast\"]\n\
                [[rule]]\ncheck = \"soil <> 'sand' OR area = 'coast'\"\n";
    let text_column = |values: &[&str]| shared(StringArray::from(values.to_vec()));
    let case = Case::parse(
        text,
        vec![("soil", text_column(&["clay"; 3])), ("area", text_column(&["hill"; 3]))],
    );
    let mut output = case.encoder.encode_rows(&case.rows);
    let first = |feature: usize| output.layout.slots[feature].range().start;
    let (soil, area) = (first(0), first(1));
    // Logits of clay and sand, hill and coast.
    let logits = [[1.0, 5.0, 2.0, 1.0], [1.0, 1.5, 2.0, 0.0], [2.0, 1.0, 2.0, 1.0]];
    for (row, [clay, sand, hill, coast]) in logits.into_iter().enumerate() {
        let values = &mut output.values[row * output.width..][..output.width];
        (values[soil], values[soil + 1]) = (clay, sand);
        (values[area], values[area + 1]) = (hill, coast);
    }
    let settled = case.process(&output, &case.widest());
    let codes = |feature: usize| settled.cells[feature].codes().expect("codes").to_vec();
    assert_eq!((codes(0), codes(1)), (vec![1, 0, 0], vec![1, 0, 0]));
    let (repaired, rows) =
        case.constraints.repaired(&output, &case.rows, &case.widest(), &case.bounds);
    assert_eq!(repaired, [0, 1], "the third keeps the rule");
    assert_eq!(rows.cell(1, 0), Cell::Code(1));
}

/// A column of lists of texts.
pub(super) fn text_lists<'t>(
    lists: impl Iterator<Item = Option<Vec<Option<&'t str>>>>,
) -> ArrayRef {
    let mut builder = arrow::array::ListBuilder::new(arrow::array::StringBuilder::new());
    for list in lists {
        match list {
            Some(items) => builder.append_value(items),
            None => builder.append_null(),
        }
    }
    shared(builder.finish())
}

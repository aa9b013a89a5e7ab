//! A fitted generator in a query.

use std::fs;
use std::path::Path;
use std::process::Command;

use expect_test::expect;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::fitted::{APPROVED, LITTLE, QUICK, applications, generator, scorer};
use crate::util::{Bench, Run, overturn, program, project, python, read_table};

/// The model that the generator was trained against.
fn model() -> String {
    project().join("jobs/demo/logistic.onnx").display().to_string()
}

fn ask(bench: &Bench, query: &str, more: &[&str]) -> Run {
    let (generator, table) =
        (generator().display().to_string(), format!("a={}", bench.text("applications")));
    let arguments =
        ["sql", query, "--generator", &generator, "--model", &model(), "--table", &table];
    overturn(&[&arguments[..], more].concat())
}

#[test]
fn single_rows_and_groups() {
    let bench = Bench::new();
    let table = applications(&bench, 3000, &["--nulls", "0.02"]);
    // What a query says is what a run writes.
    bench.explain_job(&table, "# min_score is that of a query: the default.\n");
    bench.does("run", &[]).ok();
    let found = read_table(&bench.path("out/counterfactuals"));
    let query = "SELECT application_id, x['status'] AS status, x['cf_employment'] AS employment, \
                 x['plausibility'] AS plausibility FROM (SELECT application_id, counterfactual('approved') AS x \
                 FROM a) ORDER BY application_id";
    let said = ask(&bench, query, &["--format", "json"]).ok().stdout;
    let rows: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).expect("a row")).collect();
    assert_eq!(rows.len(), 3000);
    let answered: Vec<&serde_json::Value> =
        rows.iter().filter(|row| row["status"] != "rejected").collect();
    assert_eq!(answered.len(), found.num_rows());
    let status =
        arrow::array::AsArray::as_string::<i32>(found.column_by_name("status").expect("a column"));
    let plausibility = found.column_by_name("plausibility").expect("a column");
    let plausibility =
        arrow::array::AsArray::as_primitive::<arrow::datatypes::Float64Type>(plausibility);
    for ((row, status), plausibility) in answered.iter().zip(status).zip(plausibility) {
        assert_eq!(row["status"].as_str(), status, "{row}");
        assert_eq!(row["plausibility"].as_f64(), plausibility, "{row}");
    }
    assert!(plausibility.iter().flatten().count() > 100, "solved rows have it");
    let text = ask(
        &bench,
        "SELECT region, count(*) AS rows, avg(CAST(counterfactual('approved')['valid'] AS INT)) AS valid \
         FROM a GROUP BY region ORDER BY region",
        &[],
    );
    let text = text.ok().stdout;
    assert!(text.contains("| region  | rows") && text.contains("| capital"), "{text}");
    let single = ask(
        &bench,
        "SELECT counterfactual('approved')['changes'] AS changes FROM a WHERE application_id = 17",
        &["--format", "json"],
    );
    assert!(single.ok().stdout.starts_with("{\"changes\":["));
}

#[test]
fn queries_that_make_no_sense() {
    let bench = Bench::new();
    applications(&bench, 50, &[]);
    ask(&bench, "SELEC 1", &[]).says(1, &expect![[r#"
        error: query: SQL error: ParserError("Expected: an SQL statement, found: SELEC at Line: 1, Column: 1")
          hint: column names are case-sensitive; tables are those given with `--table`
    "#]]);
    ask(&bench, "SELECT counterfactual('approved') FROM b", &[]).says(
        1,
        &expect![[r#"
        error: query: Error during planning: table 'datafusion.public.b' not found
          hint: column names are case-sensitive; tables are those given with `--table`
    "#]],
    );
    ask(&bench, "SELECT counterfactual('approved', age) FROM a", &[]).says(1, &expect![[r#"
        error: query: Error during planning: Execution error: Function 'counterfactual' user-defined coercion failed with: Error during planning: counterfactual has 2 arguments, expected the target, alone or with the 16 features: age, income, debt, savings, loan_amount, loan_term_months, credit_history_months, late_payments, open_accounts, employment, housing, education, purpose, marital_status, sex, region. No function matches the given name and argument types 'counterfactual(Utf8, Int32)'. You might need to add explicit type casts.
        	Candidate functions:
        	counterfactual(UserDefined)
          hint: column names are case-sensitive; tables are those given with `--table`
    "#]]);
    ask(&bench, "DROP TABLE a", &[]).says(
        1,
        &expect![[r#"
        error: query: Error during planning: DDL not supported: DropTable
          hint: column names are case-sensitive; tables are those given with `--table`
    "#]],
    );
    ask(&bench, "COPY a TO '/tmp/x.parquet'", &[]).says(
        1,
        &expect![[r#"
        error: query: Error during planning: DML not supported: COPY
          hint: column names are case-sensitive; tables are those given with `--table`
    "#]],
    );
    let (generator, table) =
        (generator().display().to_string(), format!("Apps={}", bench.text("applications")));
    let model = model();
    let named = ["--generator", &generator, "--model", &model, "--table", &table];
    let count = ["sql", "SELECT count(*) AS n FROM Apps", "--format", "json"];
    assert_eq!(overturn(&[&count[..], &named].concat()).ok().stdout.trim(), "{\"n\":50}");
    overturn(&[&count[..], &named, &["--table", &table]].concat()).says(
        1,
        &expect![[r#"
        error: Apps: cannot name a table: Execution error: The table Apps already exists
    "#]],
    );
    ask(&bench, "SELECT counterfactual('aproved')['detail'] AS detail FROM a LIMIT 1", &[])
        .says(1, &expect![[r#"
            error: query: asks counterfactual for `aproved`, expected one of ["approved", "rejected"]
              hint: did you mean `approved`?
        "#]]);
    let unknown = ask(
        &bench,
        "SELECT counterfactual(CASE WHEN age > 0 THEN 'maybe' END)['detail'] AS detail FROM a LIMIT 1",
        &["--format", "json"],
    );
    let unknown = unknown.ok().stdout;
    assert!(unknown.contains("no_target: the target column says `maybe`"), "{unknown}");
    let nowhere = ["sql", "SELECT 1", "--generator", "/nowhere", "--model", &model];
    overturn(&[&nowhere[..], &["--table", "a=/nowhere"]].concat()).says(
        1,
        &expect![[r#"
        error: /nowhere: does not exist, expected a Parquet file, a folder or a glob
          hint: in a job file, relative paths start from its folder
    "#]],
    );
    overturn(&[&nowhere[..], &["--table", "a"]].concat()).says(
        1,
        &expect![[r#"
        error: --table: is `a`, expected NAME=PATH
    "#]],
    );
}

#[test]
fn an_answer_without_rows_has_its_columns() {
    let bench = Bench::new();
    applications(&bench, 50, &[]);
    let query = "SELECT age, region AS place FROM a WHERE age > 1000";
    let text = ask(&bench, query, &[]).ok().stdout;
    assert!(text.contains("| age | place |"), "{text}");
    assert_eq!(ask(&bench, query, &["--format", "json"]).ok().stdout.trim(), "");
}

/// A copy of the fitted generator, whose description may be changed.
fn copied(bench: &Bench, change: &dyn Fn(&mut Value)) -> String {
    let folder = bench.path("generator");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    for entry in fs::read_dir(generator()).expect("a folder").flatten() {
        fs::copy(entry.path(), folder.join(entry.file_name())).expect("copied");
    }
    let mut description = bench.json("generator/generator.json");
    change(&mut description);
    bench.write("generator/generator.json", &description.to_string());
    folder.display().to_string()
}

fn ask_of(generator: &str, more: &[&str]) -> Run {
    let query = "SELECT counterfactual('approved')['status'] AS status FROM a LIMIT 3";
    let arguments = ["sql", query, "--format", "json", "--generator", generator];
    Run::of(program().args([&arguments[..], more].concat()))
}

#[test]
fn a_generator_starts_nothing() {
    let bench = Bench::new();
    let table = format!("a={}", applications(&bench, 50, &[]));
    let (started, model) = (bench.text("started"), model());
    let text = fs::read_to_string(generator().join("generator.json")).expect("readable");
    assert!(!text.contains(".onnx") && !text.contains(&*project().to_string_lossy()), "{text}");
    let command = ["touch", &started];
    let predictor = json!({
        "task": "classification", "classes": [], "probabilities": "auto",
        "kind": { "Subprocess": {
            "command": command, "folder": "/", "workers": 1, "start_limit": { "secs": 5, "nanos": 0 },
            "batch_limit": { "secs": 5, "nanos": 0 }, "retries": 0, "max_failed_share": 0.0 } },
    });
    // As version 0.1.0 wrote and believed it.
    let hash = Sha256::digest(command.join("\0"));
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let old = copied(&bench, &|description| {
        description["format"] = json!(6);
        description["predictor"] = predictor.clone();
        description["origin"]["model"] = json!(hash);
    });
    ask_of(&old, &["--model", &model, "--table", &table]).says(
        1,
        &expect![[r#"
        error: DIR/generator/generator.json: has format 6, expected 7
          hint: train the generator again
    "#]],
    );
    ask_of(&old, &["--table", &table]).says(1, &expect![[r#"
        error: the following required arguments were not provided:
          <--job <JOB>|--model <FILE>|--scorer <COMMAND>>

        Usage: overturn sql --generator <DIR> --format <FORMAT> --table <NAME=PATH> <--job <JOB>|--model <FILE>|--scorer <COMMAND>> <QUERY>

        For more information, try '--help'.
    "#]]);
    // A command in a newer one is not looked at.
    let new = copied(&bench, &|description| {
        description["predictor"] = predictor.clone();
        description["model"]["command"] = json!(command);
        description["model"]["model"] = json!("/etc/passwd");
    });
    ask_of(&new, &["--model", &model, "--table", &table]).ok();
    assert!(!Path::new(&started).exists());
}

#[test]
fn the_model_is_named_and_must_be_the_same() {
    let bench = Bench::new();
    let table = applications(&bench, 50, &[]);
    let named = format!("a={table}");
    let generator = generator().display().to_string();
    let expected = ask_of(&generator, &["--model", &model(), "--table", &named]).ok().stdout;
    let job = bench.job("${table}", "", None);
    let set = format!("table={table}");
    let by_job = ["--job", &job, "--set", &set, "--table", &named];
    assert_eq!(ask_of(&generator, &by_job).ok().stdout, expected);
    // Another copy of the same file is the same model.
    fs::copy(model(), bench.path("copy.onnx")).expect("copied");
    let copy = bench.text("copy.onnx");
    assert_eq!(ask_of(&generator, &["--model", &copy, "--table", &named]).ok().stdout, expected);
    let other = project().join("jobs/demo/forest.onnx").display().to_string();
    let hash = bench_hash(&model());
    let mismatch = ["is not the model that", "its SHA-256 is ", &*hash];
    ask_of(&generator, &["--model", &other, "--table", &named]).fails(1, &mismatch);
    ask_of(&generator, &["--scorer", "python3 x.py", "--table", &named]).fails(1, &mismatch);
    ask_of(&generator, &["--model", "/nowhere", "--table", &named]).says(
        1,
        &expect![[r#"
        error: --model: `predictor.model` is `/nowhere`, which does not exist
    "#]],
    );
    ask_of(&generator, &["--scorer", "'x", "--table", &named]).says(
        1,
        &expect![[r#"
        error: --scorer: has an unclosed '
    "#]],
    );
    ask_of(&generator, &["--scorer", "x", "--model", &other, "--table", &named]).fails(1, &[]);
}

fn bench_hash(file: &str) -> String {
    let hash = Sha256::digest(fs::read(file).expect("readable"));
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_program_is_named_and_must_be_the_same() {
    let Some(python) = python("a_program_is_named_and_must_be_the_same") else { return };
    let bench = Bench::new();
    let table = applications(&bench, 600, &[]);
    bench.write("scorer.py", &scorer("pass", LITTLE));
    let program =
        format!("kind = \"subprocess\"\ncommand = [\"{}\", \"./scorer.py\"]", python.display());
    bench.job(&table, "", Some(&program));
    bench.append("job.toml", &format!("{APPROVED}{QUICK}"));
    bench.does("train", &[]).ok();
    let (generator, named) = (bench.text("out/generator"), format!("a={table}"));
    let text = fs::read_to_string(bench.path("out/generator/generator.json")).expect("readable");
    assert!(!text.contains("scorer.py") && !text.contains(&bench.text("")), "{text}");
    let ask = |scorer: &str| {
        ask_of(&generator, &["--scorer", scorer, "--table", &named, "--threads", "1"])
    };
    let command = format!("{} '{}'", python.display(), bench.text("scorer.py"));
    assert_eq!(ask(&command).ok().stdout.lines().count(), 3);
    bench.append("scorer.py", "# changed\n");
    ask(&command).says(1, &expect![[r#"
        error: PYTHON DIR/scorer.py: is not the model that `DIR/out/generator` was trained against: its SHA-256 is HASH, expected HASH
          hint: name that model, or train a generator for this one
    "#]]);
    ask_of(&generator, &["--model", &model(), "--table", &named]).says(
        1,
        &expect![[r#"
        error: DIR/out/generator: was trained against a program, not an ONNX file
          hint: name it by `--scorer` or `--job`
    "#]],
    );
}

#[test]
fn broken_generators_are_refused() {
    let bench = Bench::new();
    let table = format!("a={}", applications(&bench, 50, &[]));
    let model = model();
    let ask = |folder: &str, said: &[&str]| {
        ask_of(folder, &["--model", &model, "--table", &table]).fails(1, said);
    };
    let weights = bench.path("generator/weights.safetensors");
    let folder = copied(&bench, &|_| {});
    let good = fs::read(&weights).expect("weights");
    // Weights of any content, under the hash that the description has.
    let with = |content: &[u8]| {
        fs::write(&weights, content).expect("written");
        let mut description = bench.json("generator/generator.json");
        description["origin"]["weights"] = json!(bench_hash(&weights.display().to_string()));
        bench.write("generator/generator.json", &description.to_string());
    };
    let mut broken = good.clone();
    let length = broken.len();
    broken[length - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    broken[length - 8..length - 4].copy_from_slice(&f32::NAN.to_le_bytes());
    with(&broken);
    ask(&folder, &["generator"]);
    for (content, said) in [
        (&good[..good.len() - 8], "cannot be read as tensors"),
        (&[0xff; 64][..], "says that its list of tensors has 18446744073709551615 bytes"),
        (&b""[..], "is shorter than 8 bytes"),
    ] {
        with(content);
        ask(&folder, &["weights.safetensors", said]);
    }
    fs::write(&weights, &good).expect("written");
    ask(&folder, &["is not the file that `generator.json` describes"]);
    fs::remove_file(&weights).expect("removed");
    ask(&folder, &["weights.safetensors: cannot be read"]);
    Run::of(Command::new("mkfifo").arg(&weights)).ok();
    ask(&folder, &["is a named pipe, expected a file"]);
    fs::remove_file(&weights).expect("removed");
    std::os::unix::fs::symlink("/dev/zero", &weights).expect("a link");
    ask(&folder, &["is a link to `/dev/zero`, outside its folder"]);
    type Damage<'a> = (&'a dyn Fn(&mut Value), &'a str);
    let description: &[Damage<'_>] = &[
        (&|value| value["actor"]["hidden"] = json!(i64::MAX), "networks of widths"),
        (&|value| value["actor"]["latent"] = json!(-1), "networks of widths"),
        (&|value| value["actor"]["wishes"] = json!(17), "the weights of the actor do not fit"),
        (&|value| value["autoencoder"] = json!([u64::MAX]), "networks of widths"),
        (&|value| value["layout"]["width"] = json!(3), "layout that its schema does not give"),
        (&|value| value["column_types"] = json!([]), "do not go together"),
        (&|value| value["schema"]["features"] = json!([]), "do not go together"),
        (
            &|value| value["targets"] = json!({ "Range": { "mean": 0.0, "std": 0.0 } }),
            "standardised",
        ),
        (&|value| value["stats"] = json!(1), "is not a generator"),
    ];
    for (change, said) in description {
        ask(&copied(&bench, change), &["generator", said]);
    }
    let nested = "[".repeat(200_000);
    bench.write("generator/generator.json", &nested);
    ask(&folder, &["generator.json: is not JSON: recursion limit exceeded"]);
}

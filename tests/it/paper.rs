//! The driver of the paper's grid, on the smallest of its tables and with hardly any training.

use std::process::Command;

use crate::util::{Bench, program, project, python};

/// A cell is run, collected, shown, and not run again.
#[test]
fn a_cell_of_the_grid_is_run_once_and_shown() {
    let Some(python) = python("a_cell_of_the_grid_is_run_once_and_shown") else { return };
    let bench = Bench::new();
    let grid = |more: &[&str]| {
        let output = Command::new(&python)
            .arg(project().join("jobs/paper/grid.py"))
            // Wine comes with scikit-learn: no data set is looked for.
            .args([program().get_program(), bench.path("none").as_os_str()])
            .arg(bench.path("work"))
            .args(["--datasets", "wine", "--models", "dt", "--seeds", "0", "--variants", "ae mo"])
            .args(["--train", "train.max_steps=50", "--train", "autoencoder.steps=50"])
            .args(more)
            .output()
            .expect("Python starts");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{said}");
        said
    };
    let said = grid(&[]);
    assert!(said.contains("0 of them done"), "{said}");
    let tried = bench.path("work/tried");
    let folder = std::fs::read_dir(&tried).expect("a folder").flatten().next().expect("one").path();
    let page = std::fs::read_to_string(folder.join("RESULTS.md")).expect("a page");
    assert!(page.contains("wine") && folder.join("results.parquet").exists(), "{page}");
    let cell = std::fs::read_dir(folder.join("cells")).expect("cells").flatten();
    let cells: Vec<_> = cell.map(|entry| entry.path()).collect();
    assert_eq!(cells.len(), 2, "{cells:?}");
    for cell in &cells {
        let text = std::fs::read_to_string(cell).expect("readable");
        let told: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let evaluations = told["evaluations"].as_object().expect("evaluations");
        for (name, figures) in evaluations {
            assert_eq!(figures["violations"], 0, "{name}: {figures}");
        }
    }
    let again = grid(&[]);
    assert!(again.contains("2 of them done"), "{again}");
}

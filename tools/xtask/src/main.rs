//! Everyday commands of the workspace: `cargo xtask <command>`.

mod capture;
mod check_run;
mod ci;
mod fuzz;
mod peers;
mod step;
mod trace;

use anyhow::{Context, bail};
use std::path::Path;

const USAGE: &str = "\
usage: cargo xtask <command> [arguments for the command underneath]

  ci          everything that a change must pass, in order, with times
  fmt         format all crates (`cargo xtask fmt --check` only looks)
  lint        clippy on everything, warnings are errors
  test        all tests; an argument selects tests by name
  doc         the documentation, warnings are errors
  check-run   run the example chain and check its report and its output capture
  trace       make the example chain's capture anew, with the same bytes each time
  fuzz        let libFuzzer search: all targets, or `fuzz TARGET`; `--minutes N` for each, 10 if not given
  peers       measure chains beside the kernel's NAT (`wire`) and dpdk-testpmd (`dpdk`); root, a quiet machine";

fn main() -> anyhow::Result<()> {
    // Asked at run time: a checkout that shares its target folder with another may run the other's build.
    let home = std::env::var_os("CARGO_MANIFEST_DIR").context("run this as `cargo xtask`")?;
    let root = Path::new(&home).join("../..");
    std::env::set_current_dir(&root).with_context(|| format!("entering {}", root.display()))?;
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    match command.as_str() {
        "ci" => ci::run(),
        "fmt" => step::FORMAT.run(&rest),
        "lint" => step::LINT.run(&rest),
        "test" => step::TEST.run(&rest),
        "doc" => step::DOC.run(&rest),
        "check-run" => check_run::run(),
        "trace" => trace::run(),
        "fuzz" => fuzz::run(&rest),
        "peers" => peers::run(&rest),
        "" | "help" | "-h" | "--help" => {
            println!("{USAGE}");
            Ok(())
        }
        unknown => bail!("there is no command `{unknown}`\n\n{USAGE}"),
    }
}

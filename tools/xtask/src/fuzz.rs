//! Fuzzing: one or all targets of `tests/fuzz/`, each for some minutes, on top of the corpora that are kept there.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

const FUZZ: &str = "tests/fuzz";
/// The options that cargo-fuzz itself takes. The code is safe Rust: a sanitizer would find nothing, and needs a nightly.
const OPTIONS: [&str; 4] = ["--fuzz-dir", FUZZ, "--sanitizer", "none"];
const MINUTES: u64 = 10;
/// What else libFuzzer is told: longest input in bytes, seconds that one may take, mebibytes of memory.
const BOUNDS: [&str; 3] = ["-max_len=4096", "-timeout=10", "-rss_limit_mb=2048"];

const INSTALL: &str =
    "cargo-fuzz is not installed: `cargo install cargo-fuzz --locked` does it, and needs a C++ compiler";

/// What a command line asks for.
#[derive(Debug, PartialEq, Eq)]
struct Order {
    target: Option<String>,
    minutes: u64,
}

impl Order {
    fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut order = Order { target: None, minutes: MINUTES };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--minutes" => {
                    let minutes = arguments.next().context("`--minutes` takes a number")?;
                    order.minutes = minutes.parse().with_context(|| format!("`{minutes}` minutes"))?;
                    ensure!(order.minutes > 0, "a target runs for one minute at least");
                }
                option if option.starts_with('-') => bail!("unknown option `{option}`"),
                target if order.target.is_none() => order.target = Some(target.to_owned()),
                other => bail!("one target or all of them: `{other}` is too many"),
            }
        }
        Ok(order)
    }
}

/// Runs the targets one after the other. New inputs go to a folder of cargo's, not into the kept corpora.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let order = Order::parse(arguments)?;
    let mut version = Command::new("cargo");
    version.args(["fuzz", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    ensure!(version.status().is_ok_and(|status| status.success()), INSTALL);
    let known = targets()?;
    let chosen = match &order.target {
        None => known,
        Some(target) if known.contains(target) => vec![target.clone()],
        Some(target) => bail!("there is no target `{target}`; the targets are {}", known.join(", ")),
    };
    for target in &chosen {
        let found = PathBuf::from("target/fuzz").join(target);
        std::fs::create_dir_all(&found).with_context(|| format!("making {}", found.display()))?;
        println!("== {target}: {} minutes, new inputs go to {}", order.minutes, found.display());
        let mut command = Command::new("cargo");
        command.args(["fuzz", "run"]).args(OPTIONS).arg(target);
        command.arg(&found).arg(format!("{FUZZ}/corpus/{target}")).arg("--").args(BOUNDS);
        command.arg(format!("-max_total_time={}", 60 * order.minutes));
        let status = command.status().context("starting `cargo fuzz`")?;
        ensure!(status.success(), "target {target} broke; its input is in {FUZZ}/artifacts/{target}");
    }
    Ok(())
}

/// The names of all targets, which are those of their corpora.
fn targets() -> anyhow::Result<Vec<String>> {
    let folder = format!("{FUZZ}/corpus");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("reading {folder}"))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<std::io::Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(words: &str) -> anyhow::Result<Order> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        Order::parse(&words)
    }

    #[test]
    fn a_target_and_its_minutes_may_be_left_out() {
        // Goal: `fuzz`, `fuzz unit` and `--minutes` mean what the usage says. Method: each form, and the wrong ones.
        let named = |minutes| Order { target: Some("unit".to_owned()), minutes };
        assert_eq!(order("").expect("all targets"), Order { target: None, minutes: MINUTES });
        assert_eq!(order("unit").expect("one target"), named(MINUTES));
        assert_eq!(order("--minutes 3 unit").expect("either order"), named(3));
        assert_eq!(order("unit --minutes 3").expect("either order"), named(3));
        for wrong in ["unit capture", "--minutes", "--minutes x", "--minutes 0", "--seed 1"] {
            assert!(order(wrong).is_err(), "{wrong}");
        }
    }
}

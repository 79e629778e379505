//! Schedules as files: what a failing run was made of and what happened, to run it again.

use std::fmt::Write;

use crate::event::Event;
use crate::options::{Options, OptionsError};
use crate::run::Failure;

/// First line of a file: what it is, and the version of its form.
const TITLE: &str = "# pannier schedule 1";

/// Why a file is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Something else, or a form of another version.
    #[error("the file does not begin with `{TITLE}`: it is no schedule, or one of another version")]
    Title,
    /// No line of options.
    #[error("the schedule has no line `options …`")]
    NoOptions,
    /// Options that make no sense.
    #[error("line {0}: {1}")]
    Options(usize, OptionsError),
    /// A line that is no event.
    #[error("line {0}: {1}")]
    Event(usize, String),
}

/// A run that can be played: see [`play`](crate::play).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// What it is made of.
    pub options: Options,
    /// What happens.
    pub events: Vec<Event>,
}

impl Schedule {
    /// Reads what [`Schedule::of`] wrote. Lines that begin with `#` say something to people.
    ///
    /// # Errors
    /// The first line that makes no sense.
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        if text.lines().next().map(str::trim_end) != Some(TITLE) {
            return Err(ScheduleError::Title);
        }
        let (mut options, mut events) = (None, Vec::new());
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match line.strip_prefix("options ") {
                Some(words) => {
                    options = Some(words.parse().map_err(|error| ScheduleError::Options(number, error))?);
                }
                None => events.push(line.parse().map_err(|error| ScheduleError::Event(number, error))?),
            }
        }
        Ok(Schedule { options: options.ok_or(ScheduleError::NoOptions)?, events })
    }

    /// A failing schedule as the text of a file.
    pub fn of(failure: &Failure) -> String {
        let mut text = format!("{TITLE}\n# broken: {}\noptions {}\n", failure.broken, failure.options);
        for event in &failure.events {
            // Writing into a string can't fail.
            let _ = writeln!(text, "{event}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Broken;
    use crate::draw;

    #[test]
    fn a_schedule_is_read_as_it_is_written() {
        // Goal: a saved failure can be played again. Method: the drawn events of random options, through the text.
        for seed in 0..20 {
            let options = Options::random(seed, 200);
            let events: Vec<Event> =
                draw(options, &options.plan().expect("random options are possible")).collect();
            let broken = Broken { promise: "once", what: "two\nlines".to_owned().replace('\n', " ") };
            let text = Schedule::of(&Failure { options, broken, events: events.clone() });
            assert_eq!(Schedule::parse(&text), Ok(Schedule { options, events }));
        }
    }

    #[test]
    fn what_is_no_schedule_is_refused_with_its_line() {
        // Goal: a sentence, not a guess. Method: each kind of damage.
        let with = |rest: &str| Schedule::parse(&format!("{TITLE}\n{rest}"));
        assert_eq!(Schedule::parse("deliver 1 1"), Err(ScheduleError::Title));
        assert_eq!(with("deliver 1 1"), Err(ScheduleError::NoOptions));
        assert!(matches!(with("options seed=x"), Err(ScheduleError::Options(2, _))));
        let line = Options::random(1, 10).to_string();
        assert!(matches!(with(&format!("options {line}\nexplode 3")), Err(ScheduleError::Event(3, _))));
    }
}

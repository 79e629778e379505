//! Writes a chain out as a chain file that leaves nothing to defaults but the shards of a live chain: what a log or a report keeps.

use std::fmt::Write as _;

use pannier_runtime::port::Faults;

use super::{ChainSpec, Side, Undecided};

impl ChainSpec {
    /// The chain as a chain file. Read from the same current directory it gives the same chain.
    pub fn to_toml(&self) -> String {
        let (plan, limits) = (&self.plan, &self.plan.limits);
        let mut out = String::new();
        let numbers = [
            ("f", plan.f() as u64),
            ("partitions", plan.layout.partitions as u64),
            ("hash_seed", plan.layout.hash_seed),
            ("seed", plan.seed),
            ("burst", self.burst as u64),
            ("unit", plan.unit_frames as u64),
        ];
        pairs(&mut out, &numbers);
        match self.shards {
            Some(shards) => pairs(&mut out, &[("shards", shards as u64), ("lanes", plan.lanes as u64)]),
            None => out.push_str("# shards and lanes: as many as the ports of a live chain have queues\n"),
        }
        if !self.crashes.is_empty() {
            let crashes: Vec<String> = self.crashes.iter().map(|crash| text(&crash.to_string())).collect();
            pairs(&mut out, &[("crash", format!("[{}]", crashes.join(", ")))]);
        }
        out.push_str("\n[limits]\n");
        let micros = |nanos: u64| nanos / 1_000;
        let bounds = [
            ("mtu", limits.mtu as u64),
            ("retained_bytes", limits.retained_bytes as u64),
            ("waiting", limits.waiting as u64),
            ("held", limits.held as u64),
            ("repair_after_us", micros(limits.repair_after)),
            ("idle_acknowledge_us", micros(limits.idle_acknowledge)),
            ("sweep_every_us", micros(limits.sweep_every)),
            ("snapshot_bytes", limits.snapshot_bytes as u64),
        ];
        pairs(&mut out, &bounds);
        self.write_ends(&mut out);
        let faults = &self.faults;
        if *faults != Faults::NONE {
            out.push_str("\n[faults]\n");
            let each = [("loss", faults.loss), ("duplicate", faults.duplicate)];
            pairs(&mut out, &each.map(|(key, value)| (key, toml::Value::Float(value))));
            let each = [("reorder", faults.reorder), ("delay", faults.delay)];
            pairs(&mut out, &each.map(|(key, value)| (key, toml::Value::Float(value))));
        }
        for stage in &self.stages {
            out.push_str("\n[[stage]]\n");
            pairs(&mut out, &[("name", text(&stage.name)), ("nf", text(stage.kind.name))]);
            let options: Vec<(&str, &toml::Value)> =
                stage.options.iter().map(|(k, v)| (k.as_str(), v)).collect();
            pairs(&mut out, &options);
        }
        out
    }

    fn write_ends(&self, out: &mut String) {
        out.push_str("\n[input]\n");
        if !self.input.sources.is_empty() {
            let entry = |source: &super::Source| {
                let file = text(&source.file.to_string_lossy());
                match source.side {
                    None => file,
                    Some(Side::Inside) => format!("{{ side = \"inside\", file = {file} }}"),
                    Some(Side::Outside) => format!("{{ side = \"outside\", file = {file} }}"),
                }
            };
            let sources: Vec<String> = self.input.sources.iter().map(entry).collect();
            pairs(out, &[("read", format!("[{}]", sources.join(", ")))]);
        }
        let inside = &self.input.inside;
        let prefixes = inside.prefixes.iter().map(|prefix| text(&prefix.to_string()));
        let all: Vec<String> = prefixes.chain(inside.macs.iter().map(|mac| text(&mac.to_string()))).collect();
        let undecided = match self.input.undecided {
            Undecided::Outbound => "outbound",
            Undecided::Inbound => "inbound",
            Undecided::Drop => "drop",
        };
        pairs(out, &[("inside", format!("[{}]", all.join(", "))), ("undecided", text(undecided))]);
        if let Some(file) = &self.output {
            out.push_str("\n[output]\n");
            pairs(out, &[("write", text(&file.to_string_lossy()))]);
        }
    }
}

/// A text in quotes.
fn text(plain: &str) -> String {
    toml::Value::String(plain.to_owned()).to_string()
}

fn pairs(out: &mut String, pairs: &[(&str, impl std::fmt::Display)]) {
    for (key, value) in pairs {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{key} = {value}");
    }
}

//! Pictures of a chain: what would run, in words and as a ring in plain text, and as a Mermaid flowchart.

use std::fmt::Write as _;

use pannier_nf::catalogue::tables_of;
use pannier_runtime::ring::Plan;

use crate::config::{ChainSpec, Side, StageSpec, Undecided};

/// What would run: stages, ring, bounds, where packets come from and go to, and what goes wrong on purpose.
///
/// ```no_run
/// let chain = pannier_chains::config::parse_line("firewall -> monitor")?;
/// print!("{}", pannier_chains::draw::describe(&chain));
/// # Ok::<(), pannier_chains::config::ChainError>(())
/// ```
pub fn describe(chain: &ChainSpec) -> String {
    let plan = &chain.plan;
    let names: Vec<&str> = chain.stages.iter().map(|stage| stage.name.as_str()).collect();
    let mut lines = vec![format!("{}: {}", chain.origin, names.join(" -> ")), String::new()];
    lines.push("stages, in outbound order; inbound packets pass them from last to first".to_owned());
    for (number, stage) in chain.stages.iter().enumerate() {
        describe_stage(&mut lines, number, stage);
    }
    lines.push(String::new());
    let (f, nodes) = (plan.f(), plan.nodes());
    lines.push(match f {
        0 => format!(
            "{}, f = 0: nothing is replicated, and a crash loses the node's state",
            counted(nodes, "node")
        ),
        _ => format!(
            "ring of {nodes} nodes, f = {f}: each stage's store is on {} nodes, and {} may fail at once",
            f + 1,
            counted(f, "node")
        ),
    });
    ring(&mut lines, chain);
    lines.push(String::new());
    describe_bounds(&mut lines, chain);
    describe_ends(&mut lines, chain);
    describe_trouble(&mut lines, chain);
    lines.push(String::new());
    lines.join("\n")
}

fn describe_stage(lines: &mut Vec<String>, number: usize, stage: &StageSpec) {
    lines.push(format!("  {number}  {}: {}, {}", stage.name, stage.kind.name, stage.kind.summary));
    for (key, value) in &stage.options {
        lines.push(format!("       {key} = {value}"));
    }
    for table in tables_of(stage.nf.as_ref()) {
        let (rows, bytes) = (counted(table.capacity, "row"), table.key_bytes + table.value_bytes);
        lines.push(format!("       table {}: {rows} of {}", table.name, counted(bytes, "byte")));
    }
}

/// The ring from top to bottom: each node with the stores it holds, each link with what it carries.
fn ring(lines: &mut Vec<String>, chain: &ChainSpec) {
    let plan = &chain.plan;
    let label = |node: usize| match chain.stages.get(node) {
        Some(stage) => format!("[ {node} {} ]", stage.name),
        None => format!("[ {node} ]"),
    };
    let width = (0..plan.nodes()).map(|node| label(node).chars().count()).max().unwrap_or(0);
    let closed = plan.nodes() > 1 && !carried(plan, plan.nodes() - 1).is_empty();
    lines.push("         inside".to_owned());
    lines.push("           |".to_owned());
    for node in 0..plan.nodes() {
        let edge = match (closed, node) {
            (false, _) => "      ",
            (true, 0) => "  +-> ",
            (true, _) => "  |   ",
        };
        let side = if node == plan.last() { "---- outside" } else { "            " };
        let line = format!("{edge}{:width$} {side}  {}", label(node), held(chain, node));
        lines.push(line.trim_end().to_owned());
        let last = node + 1 == plan.nodes();
        if !last || closed {
            let edge = if closed { "  |        " } else { "           " };
            lines.push(format!("{edge}|  {}", load(chain, node)));
        }
        if last && closed {
            lines.push("  +--------+".to_owned());
        }
    }
}

/// The stores that a node holds, with its part in each.
fn held(chain: &ChainSpec, node: usize) -> String {
    let plan = &chain.plan;
    let mut parts: Vec<String> = Vec::new();
    for stage in plan.held_by(node) {
        let part = match stage {
            _ if plan.f() == 0 => "only copy",
            _ if stage == node => "head",
            _ if plan.tail(stage) == node => "tail",
            _ => "replica",
        };
        parts.push(format!("{} ({part})", chain.stages[stage].name));
    }
    if parts.is_empty() { "holds nothing".to_owned() } else { format!("holds {}", parts.join(", ")) }
}

/// The stages whose records travel from a node to the next.
fn carried(plan: &Plan, node: usize) -> Vec<usize> {
    plan.held_by(node).filter(|stage| plan.tail(*stage) != node).collect()
}

/// What travels from a node to the next.
fn load(chain: &ChainSpec, node: usize) -> String {
    let stages = carried(&chain.plan, node);
    let names: Vec<&str> = stages.iter().map(|stage| chain.stages[*stage].name.as_str()).collect();
    let packets = node < chain.plan.last();
    match (packets, names.is_empty()) {
        (true, true) => "packets".to_owned(),
        (true, false) => format!("packets, records of {}", names.join(", ")),
        (false, true) => "nothing".to_owned(),
        (false, false) => format!("records of {}, without packets", names.join(", ")),
    }
}

fn describe_bounds(lines: &mut Vec<String>, chain: &ChainSpec) {
    let (plan, limits) = (&chain.plan, &chain.plan.limits);
    let mut line = |key: &str, value: String| lines.push(format!("  {key:<12} {value}"));
    line(
        "burst",
        format!(
            "{} read at once, up to {} committed as one unit",
            counted(chain.burst, "packet"),
            plan.unit_frames
        ),
    );
    let largest = chain.stages.iter().map(|stage| stage.nf.largest_delta_in(&plan.layout)).max().unwrap_or(0);
    let room = plan.delta_limit();
    line(
        "link",
        format!("MTU {}; a transaction may write {room} bytes, the largest needs {largest}", limits.mtu),
    );
    line(
        "bounds",
        format!(
            "{} retained, {} waiting, {} held; then no packet is taken in",
            counted(limits.retained_bytes, "byte"),
            counted(limits.waiting, "message"),
            counted(limits.held, "frame")
        ),
    );
    line(
        "timers",
        format!(
            "repair after {}, idle acknowledgement every {}, a look for expired rows every {}",
            duration(limits.repair_after),
            duration(limits.idle_acknowledge),
            duration(limits.sweep_every)
        ),
    );
    line(
        "stores",
        format!("{}, hash seed {}", counted(plan.layout.partitions, "partition"), plan.layout.hash_seed),
    );
    line("seed", plan.seed.to_string());
}

fn describe_ends(lines: &mut Vec<String>, chain: &ChainSpec) {
    let mut line = |key: &str, value: String| lines.push(format!("  {key:<12} {value}"));
    let mut by_address = chain.input.sources.is_empty();
    for source in &chain.input.sources {
        let file =
            if source.is_stdin() { "standard input".to_owned() } else { source.file.display().to_string() };
        let side = match source.side {
            None => "",
            Some(Side::Inside) => ", all of it from the inside",
            Some(Side::Outside) => ", all of it from the outside",
        };
        by_address |= source.side.is_none();
        line("input", format!("{file}{side}"));
    }
    if chain.input.sources.is_empty() {
        line("input", "not set".to_owned());
    }
    if by_address {
        let others = match chain.input.undecided {
            Undecided::Outbound => "others are outbound",
            Undecided::Inbound => "others are inbound",
            Undecided::Drop => "others are dropped",
        };
        line("directions", format!("from {} is outbound, to them inbound; {others}", chain.input.inside));
    }
    let addresses = chain.stages.iter().flat_map(|stage| stage.nf.outside_addresses());
    let addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
    if !addresses.is_empty() {
        line("", format!("to {} is inbound: the stages answer for them", addresses.join(", ")));
    }
    let output = chain.output.as_deref().map(|file| match file.to_str() {
        Some("-") => "standard output".to_owned(),
        _ => file.display().to_string(),
    });
    line("output", output.unwrap_or_else(|| "not set".to_owned()));
}

fn describe_trouble(lines: &mut Vec<String>, chain: &ChainSpec) {
    let faults = &chain.faults;
    let kinds = [
        ("loss", faults.loss),
        ("duplicate", faults.duplicate),
        ("reorder", faults.reorder),
        ("delay", faults.delay),
    ];
    let set: Vec<String> =
        kinds.iter().filter(|(_, p)| *p > 0.0).map(|(kind, p)| format!("{kind} {p}")).collect();
    if !set.is_empty() {
        lines.push(format!("  {:<12} {}, on each link of the ring", "faults", set.join(", ")));
    }
    for crash in &chain.crashes {
        let (node, name) = (crash.node, chain.node_name(crash.node));
        let packets = crash.packet;
        lines.push(format!("  {:<12} node {node} ({name}), packets taken in before: {packets}", "crash"));
    }
}

/// The chain as a Mermaid flowchart: packets and records go along thick arrows, acknowledgements along dashed ones.
///
/// ```no_run
/// let chain = pannier_chains::config::parse_line("firewall -> monitor")?;
/// println!("```mermaid\n{}```", pannier_chains::draw::mermaid(&chain));
/// # Ok::<(), pannier_chains::config::ChainError>(())
/// ```
pub fn mermaid(chain: &ChainSpec) -> String {
    let plan = &chain.plan;
    let mut lines = vec!["flowchart LR".to_owned(), "    inside([inside])".to_owned()];
    for node in 0..plan.nodes() {
        let title = match chain.stages.get(node) {
            Some(stage) if stage.name == stage.kind.name => format!("node {node}: {}", stage.name),
            Some(stage) => format!("node {node}: {} ({})", stage.name, stage.kind.name),
            None => format!("node {node}"),
        };
        lines.push(format!("    n{node}[\"{title}<br/>{}\"]", held(chain, node)));
    }
    lines.push("    outside([outside])".to_owned());
    lines.push("    inside <--> n0".to_owned());
    for node in (0..plan.nodes()).filter(|_| plan.nodes() > 1) {
        let (next, records) = (plan.successor(node), !carried(plan, node).is_empty());
        let packets = node < plan.last();
        if packets || records {
            lines.push(format!("    n{node} ==>|\"{}\"| n{next}", load(chain, node)));
        }
        if packets {
            lines.push(format!("    n{next} -->|\"inbound packets\"| n{node}"));
        }
        if records {
            lines.push(format!("    n{next} -.->|\"acknowledgements\"| n{node}"));
        }
    }
    lines.push(format!("    n{} <--> outside", plan.last()));
    let mut out = String::new();
    for line in lines {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{line}");
    }
    out
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Nanoseconds in the largest unit that leaves no rest.
fn duration(nanos: u64) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    let fit = units.iter().find(|(_, unit)| nanos >= *unit && nanos.is_multiple_of(*unit));
    fit.map_or_else(|| format!("{nanos} ns"), |(name, unit)| format!("{} {name}", nanos / unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{file, line};

    fn sample(stages: usize, f: usize) -> ChainSpec {
        let all: Vec<String> = (0..stages).map(|stage| format!("s{stage}:monitor")).collect();
        line(&all.join(" -> "), &[&format!("f={f}")]).expect("possible")
    }

    /// What stands on the ring of a description.
    fn ring_of(text: &str) -> String {
        let ring =
            text.lines().skip_while(|line| !line.ends_with("inside")).take_while(|line| !line.is_empty());
        ring.map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn every_node_and_link_of_any_ring_is_drawn() {
        // Goal: no ring is drawn wrong. Method: all small rings; nodes, parts and links are counted in both pictures.
        for (stages, f) in (1..=5).flat_map(|n| (0..=3).map(move |f| (n, f))) {
            let chain = sample(stages, f);
            let (text, graph) = (describe(&chain), mermaid(&chain));
            let (plan, ring) = (&chain.plan, ring_of(&text));
            for node in 0..plan.nodes() {
                assert!(ring.contains(&format!("[ {node} ")), "{text}");
                assert!(graph.contains(&format!("    n{node}[\"node {node}")), "{graph}");
            }
            let parts = if f == 0 { [stages, 0, 0, 0] } else { [0, stages, stages, stages * (f - 1)] };
            for (part, count) in ["(only copy)", "(head)", "(tail)", "(replica)"].into_iter().zip(parts) {
                assert_eq!(
                    (ring.matches(part).count(), graph.matches(part).count()),
                    (count, count),
                    "{text}"
                );
            }
            // Each record crosses f links; packets cross one link less than there are stages, both ways.
            let names = |text: &str| {
                let links = text.lines().filter_map(|line| line.split_once("records of "));
                links
                    .map(|(_, names)| names.matches('s').count() - names.matches("packets").count())
                    .sum::<usize>()
            };
            let without = ring.matches("without packets").count();
            assert_eq!(names(&ring.replace(", without packets", "")), stages * f, "{ring}");
            assert_eq!(ring.matches("packets").count() - without, stages - 1, "{ring}");
            assert_eq!(graph.matches("inbound packets").count(), stages - 1, "{graph}");
            assert_eq!(graph.matches("-.->").count(), if f == 0 { 0 } else { links(plan) }, "{graph}");
            assert!(graph.contains(&format!("    n{} <--> outside\n", stages - 1)), "{graph}");
            assert!(graph.lines().all(|line| line.matches('"').count() % 2 == 0), "{graph}");
        }
    }

    fn links(plan: &Plan) -> usize {
        (0..plan.nodes()).filter(|node| !carried(plan, *node).is_empty()).count()
    }

    #[test]
    fn the_ring_is_drawn_like_this() {
        // Goal: a picture that can be read. Method: one ring with a replica, compared letter by letter.
        let chain = line("fw:firewall -> nat(external=203.0.113.1)", &["f=2"]).expect("possible");
        let drawn = "         inside
           |
  +-> [ 0 fw ]                holds fw (head), nat (tail)
  |        |  packets, records of fw
  |   [ 1 nat ] ---- outside  holds fw (replica), nat (head)
  |        |  records of fw, nat, without packets
  |   [ 2 ]                   holds fw (tail), nat (replica)
  |        |  records of nat, without packets
  +--------+
";
        assert_eq!(ring_of(&describe(&chain)), drawn);
        let lone = sample(1, 0);
        let drawn = "         inside\n           |\n      [ 0 s0 ] ---- outside  holds s0 (only copy)\n";
        assert_eq!(ring_of(&describe(&lone)), drawn);
    }

    #[test]
    fn a_description_says_all_that_was_set() {
        // Goal: nothing runs that was not shown. Method: a file with settings of each kind, looked up in the text.
        let text = "f = 1\ncrash = ['big@1']\nunit = 4\nfaults.loss = 0.25\n\
            input.read = ['a.pcap', '-', { side = 'outside', file = 'b.pcap' }]\ninput.undecided = 'drop'\n\
            output.write = 'out.pcapng'\nlimits.repair_after_us = 1500\nlimits.sweep_every_us = 2000000\n\
            [[stage]]\nnf = 'nat'\nexternal = '203.0.113.1'\n[[stage]]\nnf = 'big'\n";
        let chain = file(text).expect("possible");
        let text = describe(&chain);
        for words in [
            "edge.toml: nat -> big\n",
            "  0  nat: nat, translates\n       external = \"203.0.113.1\"\n",
            "  1  big: big, writes much\n       table rows: 16 rows of 264 bytes\n",
            "each stage's store is on 2 nodes, and 1 node may fail at once\n",
            "32 packets read at once, up to 4 committed as one unit\n",
            "MTU 9018; a transaction may write",
            "the largest needs ",
            "repair after 1500 us, idle acknowledgement every 1 ms, a look for expired rows every 2 s\n",
            "configs/a.pcap\n",
            "standard input\n",
            "configs/b.pcap, all of it from the outside\n",
            "from 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, fc00::/7 is outbound, to them inbound; others are dropped\n",
            "  output       out.pcapng\n",
            "loss 0.25, on each link of the ring\n",
            "node 1 (big), packets taken in before: 1\n",
        ] {
            assert!(text.contains(words), "`{words}` is missing in\n{text}");
        }
        assert!(describe(&sample(2, 0)).contains("a crash loses the node's state"));
    }

    #[test]
    fn the_flowchart_is_drawn_like_this() {
        // Goal: valid Mermaid that shows the ring. Method: the smallest ring, compared letter by letter.
        let chain = line("fw:firewall -> monitor", &[]).expect("possible");
        let graph = "flowchart LR
    inside([inside])
    n0[\"node 0: fw (firewall)<br/>holds fw (head), monitor (tail)\"]
    n1[\"node 1: monitor<br/>holds fw (tail), monitor (head)\"]
    outside([outside])
    inside <--> n0
    n0 ==>|\"packets, records of fw\"| n1
    n1 -->|\"inbound packets\"| n0
    n1 -.->|\"acknowledgements\"| n0
    n1 ==>|\"records of monitor, without packets\"| n0
    n0 -.->|\"acknowledgements\"| n1
    n1 <--> outside
";
        assert_eq!(mermaid(&chain), graph);
    }
}

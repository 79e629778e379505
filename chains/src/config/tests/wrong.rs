//! Chains that are not possible: each kind of mistake with its line, its words and its way out; and any text at all.

use proptest::prelude::*;

use super::super::*;
use super::{KINDS, file, line};

const STAGE: &str = "[[stage]]\nnf = \"monitor\"\n";

/// Reads a text that is wrong, and checks the line, the problem and the help.
#[track_caller]
fn wrong(text: &str, at: usize, problem: &str, help: &str) {
    let error = file(text).err().unwrap_or_else(|| panic!("this should be wrong:\n{text}"));
    assert_eq!(error.line(), Some(at), "{error}");
    assert!(error.problem.contains(problem) && error.help.contains(help), "{error}");
    assert!(!error.help.is_empty() && !error.problem.ends_with('.') && !error.help.ends_with('.'), "{error}");
}

/// The same for a chain on one line with settings; `under` is what the carets stand under.
#[track_caller]
fn wrong_line(text: &str, sets: &[&str], under: &str, problem: &str, help: &str) {
    let error = line(text, sets).err().unwrap_or_else(|| panic!("this should be wrong: {text} {sets:?}"));
    let place = error.place.clone().expect("a place");
    let marked: String = place.text.chars().skip(place.column - 1).take(place.width).collect();
    assert_eq!(marked, under, "{error}");
    assert!(error.problem.contains(problem) && error.help.contains(help), "{error}");
}

#[test]
fn what_is_not_toml_is_shown_where_it_breaks() {
    // Goal: syntax errors have a place and a hint. Method: typical slips.
    wrong("f = 1\nseed = \n", 2, "a value is missing", "`key = value`");
    wrong("f = 1\n[input]\nundecided = drop\n", 3, "text stands in quotes", "`\"drop\"`");
    wrong("f = 1\nf = 2\n", 2, "duplicate key", "keep one of them");
    wrong("f = 1\n[[stage]\n", 2, "this is not TOML", "`[[stage]]`");
    wrong("\"", 1, "this is not TOML", "");
}

#[test]
fn unknown_keys_come_with_a_guess() {
    // Goal: a misspelt key is no silent default. Method: one in each table of the file.
    wrong(
        &format!("f = 1\npartitons = 3\n{STAGE}"),
        2,
        "unknown key `partitons`",
        "did you mean `partitions`?",
    );
    wrong(&format!("[limits]\nmtuu = 3\n{STAGE}"), 2, "in [limits]", "did you mean `mtu`?");
    wrong(&format!("[input]\nwrite = 3\n{STAGE}"), 2, "in [input]", "`read`, `inside` and `undecided`");
    wrong(&format!("[faults]\nlos = 0.1\n{STAGE}"), 2, "in [faults]", "did you mean `loss`?");
    wrong(&format!("[output]\nfile = 'x'\n{STAGE}"), 2, "in [output]", "the only key here is `write`");
    wrong(&format!("[[crash]]\nnode = 3\n{STAGE}"), 2, "in [[crash]]", "`stage` and `packet`");
    wrong(
        &format!("input.read = [{{ sid = 'x' }}]\n{STAGE}"),
        1,
        "in an entry of `read`",
        "did you mean `side`?",
    );
    wrong(
        "[[stage]]\nnf = 'nat'\nprots = 'keep'\n",
        3,
        "unknown option `prots` of stage `nat`",
        "did you mean `ports`?",
    );
    wrong(&format!("{STAGE}f = 2\n"), 3, "unknown option `f`", "above the first section or stage");
    wrong(
        &format!("[limits]\nseed = 2\n{STAGE}"),
        2,
        "unknown key `seed` in [limits]",
        "above the first section",
    );
    wrong("[[stage]]\nnf = 'monitor'\nx = 1\n", 3, "unknown option `x`", "there are no options of `monitor`");
}

#[test]
fn wrong_types_say_what_is_wanted() {
    // Goal: the fix can be copied. Method: a wrong type for each kind of key.
    wrong(
        &format!("f = \"1\"\n{STAGE}"),
        1,
        "`f` takes an integer from 0 to 63, and this is text",
        "`f = 1`",
    );
    wrong(&format!("seed = 1.5\n{STAGE}"), 1, "an integer from 0 on", "`seed = 1`");
    wrong(&format!("limits = 3\n{STAGE}"), 1, "`limits` takes a section", "write `[limits]`");
    wrong(&format!("[faults]\nloss = true\n{STAGE}"), 2, "a probability", "`loss = 0.01`");
    wrong(&format!("[input]\nread = 3\n{STAGE}"), 2, "the name of a capture", "`read = \"edge.pcapng\"`");
    wrong(&format!("[input]\ninside = [3]\n{STAGE}"), 2, "`inside` takes text", "double quotes");
    wrong(&format!("[output]\nwrite = 1979-05-27\n{STAGE}"), 2, "and this is a date", "double quotes");
    wrong(&format!("crash = [7]\n{STAGE}"), 1, "a list of crashes", "`crash = [\"nat@500\"]`");
    wrong("stage = 'nat'\n", 1, "a list of stages", "`[[stage]]`");
    wrong("stage = ['nat']\n", 1, "a list of stages", "`[[stage]]`");
    wrong("[stage]\nnf = 'nat'\n", 1, "a list of stages", "two brackets");
    wrong("[[stage]]\nnf = 3\n", 2, "`nf` takes a name", "`monitor`");
    wrong("[[stage]]\nname = 3\nnf = 'monitor'\n", 2, "`name` takes text", "double quotes");
}

#[test]
fn numbers_have_bounds() {
    // Goal: no value passes that the runtime can't take. Method: a value beyond each bound.
    for (key, value, most) in
        [("f", 64, 63), ("partitions", 65, 64), ("unit", 65, 64), ("burst", 257, 256), ("shards", 9, 8)]
    {
        wrong(&format!("{key} = {value}\n{STAGE}"), 1, "and this is", &format!("possible is {most}"));
    }
    for key in ["partitions", "unit", "burst"] {
        wrong(&format!("{key} = 0\n{STAGE}"), 1, "from 1 to", "possible is 1");
    }
    wrong(&format!("f = -1\n{STAGE}"), 1, "and this is -1", "possible is 0");
    wrong(&format!("seed = {}0\n{STAGE}", u64::MAX), 1, "more than 64 bits", "");
    wrong(&format!("[limits]\nmtu = 20\n{STAGE}"), 2, "`mtu` takes an integer from 64", "possible is 64");
    wrong(&format!("[limits]\nwaiting = 0\n{STAGE}"), 2, "`waiting` takes", "possible is 1");
    wrong(&format!("[limits]\nretained_bytes = 9\n{STAGE}"), 2, "takes an integer from 65535", "");
    wrong(&format!("[limits]\nrepair_after_us = 0\n{STAGE}"), 2, "from 1 to 60000000", "the default is 1000");
    wrong(&format!("shards = 4\nlanes = 2\n{STAGE}"), 2, "from 4 to 8", "possible is 4");
    wrong(&format!("[faults]\nloss = 5\n{STAGE}"), 2, "this is 5", "for 5 percent write `loss = 0.05`");
    wrong(&format!("[faults]\ndelay = -0.5\n{STAGE}"), 2, "from 0 to 1", "0 is never");
    wrong(&format!("[faults]\nreorder = nan\n{STAGE}"), 2, "from 0 to 1", "0 is never");
    wrong(&format!("[faults]\nloss = 1\n{STAGE}"), 2, "nothing ever arrives", "at most 0.99");
    wrong(&format!("{STAGE}x = {}\n", i64::MAX), 3, "unknown option", "");
    let many = format!("[[stage]]\nnf = 'nat'\nexternal = {}0\n", i64::MAX);
    wrong(&many, 3, "more than 63 bits", "no option");
}

#[test]
fn a_chain_needs_possible_stages() {
    // Goal: stages are found, named and unique. Method: each mistake of a stage.
    wrong("f = 1\n", 1, "the chain has no stage", "`[[stage]]`");
    wrong("", 1, "the chain has no stage", "`nf = \"monitor\"`");
    wrong("f = 1\nstage = []\n", 2, "the chain has no stage", "`[[stage]]`");
    wrong(
        "f = 1\n[[stage]]\nname = 'x'\n",
        2,
        "does not say what it is",
        "`monitor`, `firewall`, `nat` and `big`",
    );
    wrong("[[stage]]\nnf = 'firewal'\n", 2, "no network function `firewal`", "did you mean `firewall`?");
    wrong(&STAGE.repeat(2), 4, "two stages are named `monitor`", "`name = \"monitor2\"`");
    wrong(
        &format!("{STAGE}[[stage]]\nname='monitor2'\nnf='big'\n{STAGE}"),
        7,
        "two stages",
        "`name = \"monitor3\"`",
    );
    wrong("[[stage]]\nname = 'limits'\nnf = 'monitor'\n", 2, "can't be named `limits`", "`limits_stage`");
    wrong("[[stage]]\nname = 'node7'\nnf = 'monitor'\n", 2, "can't be named `node7`", "`node7_stage`");
    for name in ["", "a b", "a@b", "a.b"] {
        wrong(
            &format!("[[stage]]\nname = '{name}'\nnf = 'monitor'\n"),
            2,
            "is no name for a stage",
            "letters",
        );
    }
    let many: String = (0..65).map(|n| format!("[[stage]]\nname='s{n}'\nnf='monitor'\n")).collect();
    wrong(&format!("f = 1\n{many}"), 2, "at most 64 nodes", "leave out stages");
}

#[test]
fn errors_of_options_point_to_the_option() {
    // Goal: a network function's own errors have lines too. Method: a value, an element of a list, and a missing one.
    wrong(
        "[[stage]]\nnf = 'nat'\nports = 'all'\nexternal = '1.2.3.4'\n",
        3,
        "`all` is no policy",
        "(`keep` or `any`): which",
    );
    wrong("[[stage]]\nnf = 'nat'\nexternal = '1.2.3.400'\n", 3, "invalid IPv4 address", "(IPv4 address)");
    wrong("[[stage]]\nnf = 'nat'\nexternal = 4\n", 3, "option `external`", "(IPv4 address)");
    wrong(
        "[[stage]]\nnf = 'firewall'\nrules = [\n'allow a',\n'deny b',\n]\n",
        5,
        "option `rules[1]`",
        "the default is []",
    );
    wrong(
        "[[stage]]\nexternal = '0.0.0.0'\nnf = 'nat'",
        3,
        "stage `nat`: there is nowhere",
        "`external` and `ports`",
    );
    wrong("f = 1\n[[stage]]\nnf = 'nat'\n", 3, "lacks its option `external`", "what is seen outside");
}

#[test]
fn a_ring_without_room_names_the_ways_out() {
    // Goal: no trial and error. Method: a large row under a small MTU; each way out that is named is then taken.
    let text = "f = 4\nlimits.mtu = 1500\n[[stage]]\nnf = 'big'\n";
    wrong(text, 1, "with f = 4 an MTU of 1500 bytes", "any of these would do");
    let help = file(text).expect_err("no room").help;
    let ways: Vec<&str> = help.split('`').skip(1).step_by(2).collect();
    assert!(ways.len() >= 2, "{help}");
    for way in ways {
        let mut document = Document::from_toml("edge.toml", text, "").expect("TOML");
        document.set(way).expect(way);
        document.chain_of(KINDS).expect(way);
    }
    wrong("partitions = 64\nlimits.mtu = 700\n[[stage]]\nnf = 'big'\n", 2, "with f = 1", "`limits.mtu = ");
}

#[test]
fn inputs_and_crashes_are_checked() {
    // Goal: both ends and the failures are possible. Method: each mistake.
    wrong(
        &format!("[input]\ninside = [\n'10.0.0.0/8',\n'192.168.1.0/16']\n{STAGE}"),
        4,
        "are set",
        "`192.168.0.0/16`",
    );
    wrong(&format!("[input]\ninside = 'lan'\n{STAGE}"), 2, "`lan` is no address prefix", "MAC");
    wrong(
        &format!("[input]\nundecided = 'outbond'\n{STAGE}"),
        2,
        "does not take `outbond`",
        "did you mean `outbound`?",
    );
    wrong(&format!("[input]\nread = ''\n{STAGE}"), 2, "is empty", "standard input");
    wrong(&format!("[input]\nread = ['-', '-']\n{STAGE}"), 2, "twice", "keep one");
    wrong(&format!("[input]\nread = [{{ side = 'inside' }}]\n{STAGE}"), 2, "names no `file`", "lan.pcap");
    wrong(
        &format!("[input]\nread = [{{ side = 'in', file = 'x' }}]\n{STAGE}"),
        2,
        "`in`",
        "`inside` and `outside`",
    );
    wrong(&format!("[output]\nwrite = ''\n{STAGE}"), 2, "is empty", "standard output");
    wrong(&format!("crash = ['monitr@5']\n{STAGE}"), 1, "no stage `monitr`", "did you mean `monitor`?");
    wrong(&format!("f = 2\ncrash = ['node5@5']\n{STAGE}"), 2, "no `node5`", "`node0` to `node2`");
    wrong(&format!("[[crash]]\nstage = 'nat'\npacket = 5\n{STAGE}"), 2, "no stage `nat`", "`monitor`");
    wrong(&format!("[[crash]]\nstage = 'monitor'\n{STAGE}"), 1, "has no `packet`", "`packet = 500`");
    wrong(&format!("[[crash]]\npacket = 5\n{STAGE}"), 1, "has no `stage`", "`stage = \"nat\"`");
    wrong(&format!("f = 0\ncrash = ['monitor@5']\n{STAGE}"), 2, "with f = 0", "set `f = 1`");
    wrong(
        &format!("crash = [\n'monitor@5',\n'node1@5']\n{STAGE}"),
        3,
        "2 nodes crash at packet 5",
        "set `f = 2`",
    );
}

#[test]
fn a_line_shows_the_part_that_is_wrong() {
    // Goal: carets under the offending part. Method: each mistake of the one-line form.
    let nat = "nat(external=1.2.3.4)";
    wrong_line("", &[], "", "a network function is missing", "a chain is");
    wrong_line("monitor -> ", &[], "", "the line ends", "a chain is");
    wrong_line("monitor -> -> nat", &[], "-", "here stands `-`", "a chain is");
    wrong_line("monitor nat", &[], "n", "`->` between", "write `firewall -> nat`");
    wrong_line("a: -> nat", &[], "-", "a network function is missing", "");
    wrong_line("monitor -> nta(x=1)", &[], "nta", "no network function `nta`", "did you mean `nat`?");
    wrong_line("monitor -> nat(external=1.2.3.400)", &[], "1.2.3.400", "invalid IPv4", "(IPv4 address)");
    wrong_line("nat(extrenal=1.2.3.4)", &[], "extrenal", "unknown option", "did you mean `external`?");
    wrong_line("monitor -> nat", &[], "nat", "lacks its option `external`", "IPv4 address");
    wrong_line("nat(external)", &[], ")", "`external` has no value", "`name=value`");
    wrong_line("nat(external=)", &[], ")", "a value is missing", "");
    wrong_line("nat(external=1.2.3.4", &[], "(", "never closed", "add a `)`");
    wrong_line("firewall(rules=[allow", &[], "[", "never closed", "add a `]`");
    wrong_line("firewall(rules=[a)", &[], "[", "never closed", "add a `]`");
    wrong_line("nat(external='1.2.3.4)", &[], "'", "no closing quote", "");
    wrong_line("nat(external=\"\\x\")", &[], "\"\\x\"", "this is no text", "backslash");
    wrong_line("nat(external='a' b)", &[], "b", "a `,` or `)` is missing", "commas");
    wrong_line("nat(ports=any, ports=any)", &[], "ports", "given twice", "keep one");
    wrong_line("monitor -> µ:monitor -> µ:big", &[], "µ", "two stages are named `µ`", "`name = \"µ2\"`");
    wrong_line(&format!("firewall(rules={}", "[".repeat(99)), &[], "[", "too deep", "");
    wrong_line(nat, &["f=2x"], "2x", "this is text", "`f = 1`");
    wrong_line(nat, &["f"], "f", "a setting is `key=value`", "limits.mtu=1500");
    wrong_line(nat, &["fx=1"], "fx", "unknown key `fx`", "did you mean `f`?");
    wrong_line(nat, &["nta.ports=1"], "nta", "no stage or section `nta`", "did you mean `nat`?");
    wrong_line(nat, &["nat=1"], "nat", "is a stage and no key", "`nat.option=value`");
    wrong_line(nat, &["f.x=1"], "f", "has no keys below it", "`f=value`");
    wrong_line(nat, &["limits.mut=1500"], "mut", "unknown key `mut` in [limits]", "did you mean `mtu`?");
    wrong_line(nat, &["nat.prots=any"], "prots", "unknown option `prots`", "did you mean `ports`?");
    wrong_line(nat, &["nat.ports=all"], "all", "`all` is no policy", "`keep` or `any`");
    wrong_line(nat, &["crash=[nat@5] x"], "x", "the value ends before this", "quotes");
    wrong_line(
        nat,
        &[&format!("nat.ports{}=1", ".x".repeat(99_999))],
        "x",
        "too deep",
        "`section.key=value`",
    );
    wrong_line(nat, &["=1"], "=", "unknown key ``", "the keys are");
}

#[test]
fn options_of_the_command_line_are_named_as_they_were_typed() {
    // Goal: errors point to what was typed. Method: wrong faults, crashes and captures; name, text and carets.
    let fault = |text: &str| {
        let mut document = Document::from_line("monitor").expect("a chain");
        document.set_fault(text).and_then(|()| document.chain_of(KINDS)).expect_err(text)
    };
    let mut chain = line("monitor", &[]).expect("a chain");
    let twice = chain.read_from(&["-", "outside:-"]).expect_err("twice");
    let empty = chain.read_from(&["a", "inside:"]).expect_err("empty");
    assert!(chain.input.sources.is_empty() && chain.read_from(&[""]).is_err());
    let crash = chain.add_crash("nat@5").expect_err("no such stage");
    for (error, head, help) in [
        (fault("loss=1.1"), "--faults:1:6", "`loss = 0.011`"),
        (fault("los=0.1"), "--faults:1:1", "did you mean `loss`?"),
        (fault("loss"), "--faults:1:1", "`loss=0.01`"),
        (crash, "--crash:1:1", "`monitor`"),
        (twice, "--read:1:1", "keep one"),
        (empty, "--read:1:1", "`inside:lan.pcap`"),
    ] {
        assert!(error.to_string().contains(&format!("--> {head}\n")), "{error}");
        assert!(error.help.contains(help), "{error}");
    }
    chain.read_from(&["inside:a:b", "c"]).expect("possible");
    assert_eq!(chain.input.sources[0], Source { side: Some(Side::Inside), file: "a:b".into() });
}

#[test]
fn files_that_are_none_are_named() {
    // Goal: a wrong path is told from a wrong file. Method: missing, near miss, folder, binary and too long files.
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let load = |name: &str| Document::load(path(name)).expect_err(name).to_string();
    std::fs::write(path("edge.toml"), "f = ").expect("written");
    std::fs::write(path("binary.toml"), [b'f', 0xff]).expect("written");
    std::fs::write(path("lines.toml"), b"f = 1\n# \"\xff\"\nf").expect("written");
    std::fs::write(path("nul.toml"), b"f\n=\0").expect("written");
    std::fs::write(path("long.toml"), vec![b' '; MAX_FILE as usize + 1]).expect("written");
    assert!(
        load("egde.toml").starts_with("no such chain file `") && load("egde.toml").contains("edge.toml`?")
    );
    assert!(load("nothing").contains("on one line"));
    assert!(load(".").contains("can't be read"));
    assert!(load("binary.toml").contains("byte 1, in line 1, is not UTF-8"));
    assert!(
        load("lines.toml").contains("byte 9, in line 2, is not") && load("lines.toml").contains("toml:2:4")
    );
    assert!(load("nul.toml").contains("byte 3, in line 2, is NUL"));
    assert!(load("long.toml").contains("too long"));
    assert!(load("edge.toml").contains("edge.toml:1:"));
    let help = |text: &str| open::<&str>(text, &[]).expect_err(text).help;
    assert!(help("f=2 monitor").contains("`'monitor' --set f=2`"));
    assert!(help("firewall monitor").contains("`firewall -> monitor`"));
    assert!(help("f=2 -> monitor").contains("`--set f=2`"));
    assert_eq!(line("monitor → big", &[]).expect("an arrow").stages.len(), 2);
    let error = open::<&str>(&path("gone.toml").to_string_lossy(), &[]).expect_err("missing");
    assert!(error.problem.starts_with("no such chain file") && error.place.is_none());
}

#[test]
fn an_error_reads_as_a_whole() {
    // Goal: the layout of errors stays readable. Method: one error compared letter by letter.
    let error =
        file("f = 1\n\n[[stage]]\nnf = \"nat\"\nprots = \"keep\"\n").expect_err("misspelt").to_string();
    let text = "unknown option `prots` of stage `nat`\n   --> edge.toml:5:1\n   |\n 5 | prots = \"keep\"\n   | ^^^^^\n   \
                = help: did you mean `ports`? The options of `nat` are `external` and `ports`";
    assert_eq!(error, text);
}

/// Text that is nearly a chain file, and text that is nearly a chain on one line.
fn pieces() -> impl Strategy<Value = String> {
    let words = [
        "f",
        "=",
        "1",
        "\n",
        "[",
        "]",
        "[[stage]]",
        "nf",
        "'nat'",
        "\"",
        "monitor",
        "->",
        "(",
        ")",
        ",",
        ":",
        "{",
        "}",
        "external",
        "1.2.3.4",
        "crash",
        "nat@5",
        "limits",
        ".",
        "mtu",
        "0x",
        "-",
        "µ",
        "\\",
        "\t",
        "input",
        "read",
        "'",
        "\r\n",
        "1e999",
        "nan",
        "#",
        "stage",
        "99999999999999999999999999999999999999999999",
        " ",
        "\u{0}",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..24).prop_map(|words| words.concat())
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), pieces()]
}

proptest! {
    #[test]
    fn no_text_breaks_the_readers(text in any_text(), setting in any_text()) {
        // Goal: no panic, whatever is written. Method: random and nearly right text in all three forms; errors print.
        let show = |error: ChainError| error.to_string().len();
        let _ = file(&text).map_err(show);
        let _ = line(&text, &[&setting]).map_err(show);
        let _ = line("monitor -> n:nat(external=1.2.3.4)", &[&setting]).map_err(show);
        let _ = line("nat(external=1.2.3.4)", &[&format!("nat.{text}={setting}")]).map_err(show);
        let _ = Crash::parse(&text, &["nat"], 3).map_err(show);
        let _ = Inside::nothing().add(&text).map_err(show);
        let _ = looks_like_line(&text);
    }
}

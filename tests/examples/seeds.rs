//! Writes the seeds of the fuzz targets into their corpora, for a new target or after a change of a format.

use pannier_tests::edge;
use pannier_tests::fuzz::TARGETS;

fn main() -> std::io::Result<()> {
    for target in TARGETS {
        let folder = edge::root().join("tests/fuzz/corpus").join(target.name);
        std::fs::create_dir_all(&folder)?;
        let seeds = (target.seeds)();
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number:02}")), seed)?;
        }
        println!("{}: {} seeds", target.name, seeds.len());
    }
    Ok(())
}

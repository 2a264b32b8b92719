//! Positions on earth: sorted sets whose scores are geohashes.

use keyspace::effects::class;
use keyspace::types::geo::{Extent, Position, Shape};
use keyspace::types::zset::{Edge, Zset};
use keyspace::value::Value;
use resp::{Args, Writer, number};

use crate::command::{
    Command, DENY_OOM, Family, Flags, Group, KeySpec, OW, READONLY, RO, RW_UPDATE, WRITE, at,
    first, option,
};
use crate::context::Context;
use crate::error::Error;
use crate::words::{float, integer, is};
use crate::zset::zadd_words;

const WRITE_MORE: Flags = WRITE.with(DENY_OOM);
const SEARCH_COST: &str = "O(N+log(M)), N = members in the cells around the shape, M = members";
const LOOKUP_COST: &str = "O(1) for each member asked for";
const RADIUS_KEYS: &[KeySpec] = &[first(RO), store(6), store_distances(6)];
const RADIUS_BY_MEMBER_KEYS: &[KeySpec] = &[first(RO), store(5), store_distances(5)];

const fn store(from: usize) -> KeySpec {
    option("STORE", from, &[("COUNT", 1), ("STOREDIST", 1)], OW)
}

const fn store_distances(from: usize) -> KeySpec {
    option("STOREDIST", from, &[("COUNT", 1), ("STORE", 1)], OW)
}

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Geo,
    commands: &[
        Command {
            name: "GEOADD",
            run: geoadd,
            flags: WRITE_MORE,
            keys: &[first(RW_UPDATE)],
            usage: "key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]",
            summary: "Gives members their positions, adding those that are new.",
            complexity: "O(log(N)) for each member given, N = members",
            since: "3.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "GEODIST",
            run: geodist,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key member1 member2 [M | KM | FT | MI]",
            summary: "Returns the distance between two members.",
            since: "3.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "GEOHASH",
            run: geohash,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key [member [member ...]]",
            summary: "Returns members' positions as geohashes.",
            complexity: LOOKUP_COST,
            since: "3.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "GEOPOS",
            run: geopos,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key [member [member ...]]",
            summary: "Returns members' longitudes and latitudes.",
            complexity: LOOKUP_COST,
            since: "3.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "GEOSEARCH",
            run: geosearch,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key <FROMMEMBER member | FROMLONLAT longitude latitude> \
                    <BYRADIUS radius <M | KM | FT | MI> | \
                    BYBOX width height <M | KM | FT | MI>> [ASC | DESC] \
                    [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]",
            // The shorter alternatives: FROMMEMBER with its member, BYRADIUS with radius and unit.
            arity_override: -7,
            summary: "Returns the members inside a circle or a box.",
            complexity: SEARCH_COST,
            since: "6.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "GEOSEARCHSTORE",
            run: geosearchstore,
            flags: WRITE_MORE,
            keys: &[first(OW), at(2, RO)],
            usage: "destination source <FROMMEMBER member | FROMLONLAT longitude latitude> \
                    <BYRADIUS radius <M | KM | FT | MI> | \
                    BYBOX width height <M | KM | FT | MI>> [ASC | DESC] \
                    [COUNT count [ANY]] [STOREDIST]",
            arity_override: -8,
            summary: "Stores the members inside a circle or a box.",
            complexity: SEARCH_COST,
            since: "6.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "GEORADIUS",
            run: georadius,
            flags: WRITE_MORE,
            keys: RADIUS_KEYS,
            usage: "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] \
                    [WITHHASH] [COUNT count [ANY]] [ASC | DESC] [STORE key | STOREDIST key]",
            summary: "Returns or stores the members within a distance of a position.",
            complexity: SEARCH_COST,
            since: "3.2.0",
            deprecated: Some(("6.2.0", "GEOSEARCH and GEOSEARCHSTORE with BYRADIUS")),
            ..Command::DEFAULT
        },
        Command {
            name: "GEORADIUS_RO",
            run: georadius_ro,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] \
                    [WITHHASH] [COUNT count [ANY]] [ASC | DESC]",
            summary: "Returns the members within a distance of a position.",
            complexity: SEARCH_COST,
            since: "3.2.10",
            deprecated: Some(("6.2.0", "GEOSEARCH with BYRADIUS")),
            ..Command::DEFAULT
        },
        Command {
            name: "GEORADIUSBYMEMBER",
            run: georadiusbymember,
            flags: WRITE_MORE,
            keys: RADIUS_BY_MEMBER_KEYS,
            usage: "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] \
                    [COUNT count [ANY]] [ASC | DESC] [STORE key | STOREDIST key]",
            summary: "Returns or stores the members within a distance of another.",
            complexity: SEARCH_COST,
            since: "3.2.0",
            deprecated: Some((
                "6.2.0",
                "GEOSEARCH and GEOSEARCHSTORE with BYRADIUS and FROMMEMBER",
            )),
            ..Command::DEFAULT
        },
        Command {
            name: "GEORADIUSBYMEMBER_RO",
            run: georadiusbymember_ro,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] \
                    [COUNT count [ANY]] [ASC | DESC]",
            summary: "Returns the members within a distance of another.",
            complexity: SEARCH_COST,
            since: "3.2.10",
            deprecated: Some(("6.2.0", "GEOSEARCH with BYRADIUS and FROMMEMBER")),
            ..Command::DEFAULT
        },
    ],
};

const NOT_A_MEMBER: Error = Error::text("ERR could not decode requested zset member");

// Words and numbers.

/// A position from two words, longitude first.
fn position(longitude: &[u8], latitude: &[u8]) -> Result<Position, Error> {
    let position = Position { longitude: float(longitude)?, latitude: float(latitude)? };
    if position.is_valid() {
        return Ok(position);
    }
    let Position { longitude, latitude } = position;
    Err(Error::new(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")))
}

/// Meters in a unit.
fn unit_m(word: &[u8]) -> Result<f64, Error> {
    let units = [("M", 1.0), ("KM", 1000.0), ("FT", 0.3048), ("MI", 1609.34)];
    let found = units.into_iter().find(|(name, _)| is(word, name));
    let text = "ERR unsupported unit provided. please use M, KM, FT, MI";
    found.map(|(_, meters)| meters).ok_or(Error::text(text))
}

/// A circle's size from radius and unit.
fn radius(radius: &[u8], unit: &[u8]) -> Result<(Extent, f64), Error> {
    let radius = number::double(radius).ok_or(Error::text("ERR need numeric radius"))?;
    if radius < 0.0 {
        return Err(Error::text("ERR radius cannot be negative"));
    }
    Ok((Extent::Radius(radius), unit_m(unit)?))
}

/// A box's size from width, height and unit.
fn box_of(width: &[u8], height: &[u8], unit: &[u8]) -> Result<(Extent, f64), Error> {
    let width = number::double(width).ok_or(Error::text("ERR need numeric width"))?;
    let height = number::double(height).ok_or(Error::text("ERR need numeric height"))?;
    if width < 0.0 || height < 0.0 {
        return Err(Error::text("ERR height or width cannot be negative"));
    }
    Ok((Extent::Box { width, height }, unit_m(unit)?))
}

/// A distance with four digits after the point, as a bulk string in both versions.
fn write_distance(out: &mut Writer, distance: f64) {
    let scaled = (distance * 10_000.0).round_ties_even() as i64;
    let (sign, scaled) = (if scaled < 0 { "-" } else { "" }, scaled.unsigned_abs());
    out.text(&format!("{sign}{}.{:04}", scaled / 10_000, scaled % 10_000));
}

/// A coordinate with up to seventeen digits after the point.
fn write_coordinate(out: &mut Writer, degrees: f64) {
    let text = format!("{degrees:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let text = if text == "-0" { "0" } else { text };
    if out.is_resp3() {
        out.raw(format!(",{text}\r\n").as_bytes());
    } else {
        out.text(text);
    }
}

fn write_position(out: &mut Writer, position: Position) {
    out.array(2);
    write_coordinate(out, position.longitude);
    write_coordinate(out, position.latitude);
}

// Single members.

fn geoadd(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let mut index = 2;
    let (mut only_new, mut only_old) = (false, false);
    while let Some(word) = args.get(index) {
        match word {
            _ if is(word, "NX") => only_new = true,
            _ if is(word, "XX") => only_old = true,
            _ if is(word, "CH") => {}
            _ => break,
        }
        index += 1;
    }
    if !(args.len() - index).is_multiple_of(3) || only_new && only_old {
        return Err(Error::SYNTAX);
    }
    let mut scores = Vec::with_capacity((args.len() - index) / 3);
    for at in (index..args.len()).step_by(3) {
        scores.push(position(args.word(at), args.word(at + 1))?.score().to_string());
    }
    let mut words: Vec<&[u8]> = vec![b"ZADD"];
    words.extend(args.iter().skip(1).take(index - 1));
    for (score, at) in scores.iter().zip((index + 2..).step_by(3)) {
        words.extend([score.as_bytes(), args.word(at)]);
    }
    zadd_words(cx, &words)?;
    cx.keys.rewrite(&words);
    Ok(())
}

fn position_of(set: Option<&Zset>, member: &[u8]) -> Option<Position> {
    set?.score(member).map(Position::of_score)
}

fn geodist(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let unit_m = match (args.get(4), args.len()) {
        (None, _) => 1.0,
        (Some(unit), 5) => unit_m(unit)?,
        _ => return Err(Error::SYNTAX),
    };
    let set = cx.keys.zset(args.word(1))?;
    let one = position_of(set, args.word(2));
    match one.zip(position_of(set, args.word(3))) {
        Some((one, other)) => write_distance(cx.out, one.distance_m(other) / unit_m),
        None => cx.out.null(),
    }
    Ok(())
}

fn geohash(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let set = cx.keys.zset(args.word(1))?;
    cx.out.array(args.len() - 2);
    for member in args.iter().skip(2) {
        match position_of(set, member) {
            Some(position) => cx.out.bulk(&position.geohash()),
            None => cx.out.null(),
        }
    }
    Ok(())
}

fn geopos(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let set = cx.keys.zset(args.word(1))?;
    cx.out.array(args.len() - 2);
    for member in args.iter().skip(2) {
        match position_of(set, member) {
            Some(position) => write_position(cx.out, position),
            None => cx.out.null_array(),
        }
    }
    Ok(())
}

// Searches.

/// Which of the search commands runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Radius,
    RadiusByMember,
    Search,
    SearchStore,
}

/// Whether the old commands' STORE options are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreWords {
    Taken,
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Near,
    Far,
}

/// Where a search's result goes.
#[derive(Debug, Clone, Copy)]
struct Destination<'a> {
    key: &'a [u8],
    /// The scores are distances instead of geohashes.
    distances: bool,
}

/// A whole search but for what its source key holds.
#[derive(Default)]
struct Query<'a> {
    center: Option<Position>,
    /// The center is a member's position; unknown where the key is not there.
    from_member: bool,
    /// Size and meters in its unit.
    extent: Option<(Extent, f64)>,
    order: Option<Order>,
    /// 0 = all.
    count: usize,
    /// ANY: as soon as there are enough.
    any: bool,
    with_distance: bool,
    with_hash: bool,
    with_position: bool,
    destination: Option<Destination<'a>>,
}

impl<'a> Query<'a> {
    /// Reads the options from the word at `at` on.
    fn read_options(
        &mut self,
        args: Args<'a>,
        mut at: usize,
        form: Form,
        store: StoreWords,
        set: Option<&Zset>,
    ) -> Result<(), Error> {
        let is_search = matches!(form, Form::Search | Form::SearchStore);
        while at < args.len() {
            let word = args.word(at);
            let more = args.len() - at - 1;
            at += 1 + match word {
                _ if is(word, "WITHDIST") => raise(&mut self.with_distance),
                _ if is(word, "WITHHASH") => raise(&mut self.with_hash),
                _ if is(word, "WITHCOORD") => raise(&mut self.with_position),
                _ if is(word, "ANY") => raise(&mut self.any),
                _ if is(word, "ASC") => {
                    self.order = Some(Order::Near);
                    0
                }
                _ if is(word, "DESC") => {
                    self.order = Some(Order::Far);
                    0
                }
                _ if is(word, "COUNT") && more >= 1 => {
                    self.count = count(args.word(at + 1))?;
                    1
                }
                _ if is_search => self.read_search_option(args, at, form, set)?,
                _ if store == StoreWords::Refused || more < 1 => return Err(Error::SYNTAX),
                _ if is(word, "STORE") => self.store_at(args.word(at + 1), false),
                _ if is(word, "STOREDIST") => self.store_at(args.word(at + 1), true),
                _ => return Err(Error::SYNTAX),
            };
        }
        Ok(())
    }

    fn store_at(&mut self, key: &'a [u8], distances: bool) -> usize {
        self.destination = Some(Destination { key, distances });
        1
    }

    /// An option of the GEOSEARCH commands alone; returns how many words follow its name.
    fn read_search_option(
        &mut self,
        args: Args<'a>,
        at: usize,
        form: Form,
        set: Option<&Zset>,
    ) -> Result<usize, Error> {
        let word = args.word(at);
        let more = args.len() - at - 1;
        let from_position = self.center.is_some() && !self.from_member;
        let is_circle = matches!(self.extent, Some((Extent::Radius(_), _)));
        let is_box = self.extent.is_some() && !is_circle;
        match &mut self.destination {
            Some(destination) if is(word, "STOREDIST") && form == Form::SearchStore => {
                destination.distances = true;
                Ok(0)
            }
            _ if is(word, "FROMMEMBER") && more >= 1 && !from_position => {
                self.center_on(set, args.word(at + 1))?;
                Ok(1)
            }
            _ if is(word, "FROMLONLAT") && more >= 2 && !self.from_member => {
                self.center = Some(position(args.word(at + 1), args.word(at + 2))?);
                Ok(2)
            }
            _ if is(word, "BYRADIUS") && more >= 2 && !is_box => {
                self.extent = Some(radius(args.word(at + 1), args.word(at + 2))?);
                Ok(2)
            }
            _ if is(word, "BYBOX") && more >= 3 && !is_circle => {
                let (width, height) = (args.word(at + 1), args.word(at + 2));
                self.extent = Some(box_of(width, height, args.word(at + 3))?);
                Ok(3)
            }
            _ => Err(Error::SYNTAX),
        }
    }

    /// Takes a member's position as the center, if its set is there.
    fn center_on(&mut self, set: Option<&Zset>, member: &[u8]) -> Result<(), Error> {
        self.from_member = true;
        if set.is_some() {
            self.center = Some(position_of(set, member).ok_or(NOT_A_MEMBER)?);
        }
        Ok(())
    }

    /// Refuses what does not go together.
    fn check(&self, args: Args<'_>, form: Form) -> Result<(), Error> {
        let shows = self.with_distance || self.with_hash || self.with_position;
        if self.destination.is_some() && shows {
            let what = if form == Form::SearchStore {
                "GEOSEARCHSTORE"
            } else {
                "STORE option in GEORADIUS"
            };
            return Err(Error::new(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        let is_search = matches!(form, Form::Search | Form::SearchStore);
        let name = String::from_utf8_lossy(args.word(0));
        if is_search && self.center.is_none() && !self.from_member {
            return Err(Error::new(format!(
                "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}"
            )));
        }
        if is_search && self.extent.is_none() {
            return Err(Error::new(format!(
                "ERR exactly one of BYRADIUS and BYBOX can be specified for {name}"
            )));
        }
        if self.any && self.count == 0 {
            return Err(Error::text("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }
}

/// Sets a flag whose option has no words after it.
fn raise(flag: &mut bool) -> usize {
    *flag = true;
    0
}

fn count(word: &[u8]) -> Result<usize, Error> {
    match integer(word)? {
        ..1 => Err(Error::text("ERR COUNT must be > 0")),
        count => Ok(count as usize),
    }
}

/// A member that was found.
struct Found {
    member: Vec<u8>,
    score: f64,
    position: Position,
    distance_m: f64,
}

/// The members inside the shape, in the order and number asked for.
fn find(set: &Zset, shape: &Shape, query: &Query<'_>) -> Vec<Found> {
    let limit = if query.any { query.count } else { usize::MAX };
    let mut found = Vec::new();
    for (from, to) in shape.score_ranges() {
        let ranks = set.score_range(Edge::Before(from as f64), Edge::Before(to as f64));
        let inside = set.range(ranks).filter_map(|(member, score)| {
            let position = Position::of_score(score);
            let distance_m = shape.distance_to(position)?;
            Some(Found { member: member.to_vec(), score, position, distance_m })
        });
        found.extend(inside.take(limit - found.len()));
    }
    // COUNT without ANY means the nearest.
    let order = query.order.or((query.count > 0 && !query.any).then_some(Order::Near));
    match order {
        Some(Order::Near) => found.sort_by(|a, b| a.distance_m.total_cmp(&b.distance_m)),
        Some(Order::Far) => found.sort_by(|a, b| b.distance_m.total_cmp(&a.distance_m)),
        None => {}
    }
    if query.count > 0 {
        found.truncate(query.count);
    }
    found
}

fn search(
    cx: &mut Context<'_>,
    args: Args<'_>,
    form: Form,
    store: StoreWords,
) -> Result<(), Error> {
    let mut query = Query::default();
    let source = if form == Form::SearchStore { args.word(2) } else { args.word(1) };
    let set = cx.keys.zset(source)?;
    let first = match form {
        Form::Radius => {
            query.center = Some(position(args.word(2), args.word(3))?);
            query.extent = Some(radius(args.word(4), args.word(5))?);
            6
        }
        Form::RadiusByMember => {
            query.center_on(set, args.word(2))?;
            // Where there is no set, nobody looks at these two words, as in Redis.
            if set.is_some() {
                query.extent = Some(radius(args.word(3), args.word(4))?);
            }
            5
        }
        Form::Search => 2,
        Form::SearchStore => {
            query.destination = Some(Destination { key: args.word(1), distances: false });
            3
        }
    };
    query.read_options(args, first, form, store, set)?;
    query.check(args, form)?;
    let unit_m = query.extent.map_or(1.0, |(_, unit_m)| unit_m);
    let found = match (set, query.center, query.extent) {
        (Some(set), Some(center), Some((extent, unit_m))) => {
            find(set, &Shape { center, extent, unit_m }, &query)
        }
        _ => Vec::new(),
    };
    let Some(destination) = query.destination else {
        show(cx.out, &query, &found, unit_m);
        return Ok(());
    };
    let is_search = form == Form::SearchStore;
    let event = if is_search { "geosearchstore" } else { "georadiusstore" };
    store_found(cx, &found, destination, unit_m, event);
    Ok(())
}

fn show(out: &mut Writer, query: &Query<'_>, found: &[Found], unit_m: f64) {
    let options = [query.with_distance, query.with_hash, query.with_position];
    let shown = options.into_iter().filter(|wanted| *wanted).count();
    out.array(found.len());
    for item in found {
        if shown > 0 {
            out.array(shown + 1);
        }
        out.bulk(&item.member);
        if query.with_distance {
            write_distance(out, item.distance_m / unit_m);
        }
        if query.with_hash {
            out.int(item.score as i64);
        }
        if query.with_position {
            write_position(out, item.position);
        }
    }
}

fn store_found(
    cx: &mut Context<'_>,
    found: &[Found],
    destination: Destination<'_>,
    unit_m: f64,
    event: &'static str,
) {
    cx.out.count(found.len());
    let key = destination.key;
    if found.is_empty() {
        if cx.keys.remove(key) {
            cx.keys.notify(class::GENERIC, "del", key);
        }
        return;
    }
    let score = |item: &Found| {
        if destination.distances { item.distance_m / unit_m } else { item.score }
    };
    let pairs: Vec<(&[u8], f64)> =
        found.iter().map(|item| (&item.member[..], score(item))).collect();
    let set = Zset::build(&pairs, cx.keys.space().settings.zset_limits());
    cx.keys.put(key, Value::Zset(set), None);
    cx.keys.effects.dirty += found.len() as u64 - 1;
    cx.keys.notify(class::ZSET, event, key);
}

fn georadius(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    search(cx, args, Form::Radius, StoreWords::Taken)
}

fn georadius_ro(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    search(cx, args, Form::Radius, StoreWords::Refused)
}

fn georadiusbymember(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    search(cx, args, Form::RadiusByMember, StoreWords::Taken)
}

fn georadiusbymember_ro(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    search(cx, args, Form::RadiusByMember, StoreWords::Refused)
}

fn geosearch(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    search(cx, args, Form::Search, StoreWords::Refused)
}

fn geosearchstore(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    search(cx, args, Form::SearchStore, StoreWords::Refused)
}

#[cfg(test)]
mod tests {
    use crate::testing::Client;

    /// The replies of redis-server 7.0.15; `tests/reference.rs` compares many more.
    #[test]
    fn sicily() {
        Client::new().check(&[
            ("GEOADD Sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", ":2"),
            ("ZSCORE Sicily Palermo", "$16 3479099956230698"),
            ("GEODIST Sicily Palermo Catania", "$11 166274.1516"),
            ("GEODIST Sicily Palermo Catania km", "$8 166.2742"),
            ("GEODIST Sicily Palermo nowhere", "$-1"),
            ("GEOHASH Sicily Palermo nowhere", "*2 $11 sqc8b49rny0 $-1"),
            ("GEOPOS Sicily nowhere", "*1 *-1"),
            ("GEOPOS Sicily Palermo", "*1 *2 $20 13.36138933897018433 $20 38.11555639549629859"),
            (
                "GEOSEARCH Sicily FROMLONLAT 15 37 BYRADIUS 200 km ASC WITHDIST",
                "*2 *2 $7 Catania $7 56.4413 *2 $7 Palermo $8 190.4424",
            ),
            ("GEOSEARCH Sicily FROMLONLAT 15 37 BYBOX 200 200 km", "*1 $7 Catania"),
            ("GEOSEARCHSTORE near Sicily FROMMEMBER Catania BYRADIUS 1 m STOREDIST", ":1"),
            ("ZRANGE near 0 -1 WITHSCORES", "*2 $7 Catania $1 0"),
            ("GEORADIUS Sicily 15 37 100 km STORE near", ":1"),
            ("GEORADIUS Sicily 15 37 1 km STORE near", ":0"),
            ("ZCARD near", ":0"),
        ]);
    }

    #[test]
    fn positions_are_doubles_in_resp3() {
        Client::new().resp3().check(&[
            ("GEOADD k 13.361389 38.115556 p 0 0 zero", ":2"),
            ("GEOPOS k p none", "*2 *2 ,13.36138933897018433 ,38.11555639549629859 _"),
            ("GEODIST k p p", "$6 0.0000"),
        ]);
    }
}

//! Places on earth as scores of a sorted set: geohash cells, distances, search areas.
//!
//! A position becomes a 52-bit number: longitude and latitude as fractions of their ranges in 26
//! bits each, interleaved, latitude in the even bits. Cells that share leading bits are near each
//! other, so a square of the world is one range of scores:
//!
//! ```text
//!   step 1      step 2                     latitude  -85.05112878 .. 85.05112878
//!  +---+---+   +--+--+--+--+               longitude -180 .. 180
//!  | 1 | 3 |   | 5| 7|13|15|
//!  |   |   |   +--+--+--+--+               cell of step s = the first 2s of 52 bits
//!  +---+---+   | 4| 6|12|14|
//!  | 0 | 2 |   +--+--+--+--+ ...
//!  |   |   |
//!  +---+---+
//! ```
//!
//! A search covers its shape with a cell and up to eight neighbours ([`Shape::score_ranges`]) and
//! looks at each member in them ([`Shape::distance_to`]). Every formula and every constant is that
//! of Redis, in its order of operations, so that results agree to the last digit.

use std::f64::consts::PI;

/// The poles are out of reach of the Mercator projection.
pub const LATITUDE_MAX: f64 = 85.05112878;
/// The date line.
pub const LONGITUDE_MAX: f64 = 180.0;

/// Bits of each coordinate in a score.
const STEP_MAX: u32 = 26;
const EARTH_RADIUS_M: f64 = 6372797.560856;
/// Half of the equator in the Mercator projection.
const MERCATOR_MAX: f64 = 20037726.37;

/// A position in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Position {
    /// East of Greenwich.
    pub longitude: f64,
    /// North of the equator.
    pub latitude: f64,
}

impl Position {
    /// Whether the position can be indexed.
    pub fn is_valid(self) -> bool {
        (-LONGITUDE_MAX..=LONGITUDE_MAX).contains(&self.longitude)
            && (-LATITUDE_MAX..=LATITUDE_MAX).contains(&self.latitude)
    }

    /// The score that stands for the position, which is valid.
    pub fn score(self) -> u64 {
        Cell::of(self, STEP_MAX, LATITUDE_MAX).bits
    }

    /// The position in the middle of the smallest cell of a score.
    pub fn of_score(score: f64) -> Position {
        // A score below zero is none of ours; it means what it means in C.
        let bits = if score < 0.0 { score as i64 as u64 } else { score as u64 };
        let area = Cell { bits, step: STEP_MAX }.area();
        let middle = |min: f64, max: f64, limit: f64| ((min + max) / 2.0).clamp(-limit, limit);
        Position {
            longitude: middle(area.west, area.east, LONGITUDE_MAX),
            latitude: middle(area.south, area.north, LATITUDE_MAX),
        }
    }

    /// The position's standard geohash in eleven letters, the last of which is always `0`: 52
    /// bits are but ten letters and a rest.
    pub fn geohash(self) -> [u8; 11] {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        // The standard has latitudes up to the poles.
        let bits = Cell::of(self, STEP_MAX, 90.0).bits;
        let mut text = [b'0'; 11];
        for (index, letter) in text[..10].iter_mut().enumerate() {
            *letter = LETTERS[(bits >> (52 - (index + 1) * 5)) as usize & 0x1f];
        }
        text
    }

    /// Meters to another position on the great circle, by the haversine formula.
    pub fn distance_m(self, other: Position) -> f64 {
        let v = ((radians(other.longitude) - radians(self.longitude)) / 2.0).sin();
        if v == 0.0 {
            return latitude_distance_m(self.latitude, other.latitude);
        }
        let (here, there) = (radians(self.latitude), radians(other.latitude));
        let u = ((there - here) / 2.0).sin();
        let a = u * u + here.cos() * there.cos() * v * v;
        2.0 * EARTH_RADIUS_M * a.sqrt().asin()
    }
}

fn radians(degrees: f64) -> f64 {
    degrees * (PI / 180.0)
}

fn degrees(radians: f64) -> f64 {
    radians / (PI / 180.0)
}

/// Meters between two latitudes on one meridian.
fn latitude_distance_m(one: f64, other: f64) -> f64 {
    EARTH_RADIUS_M * (radians(other) - radians(one)).abs()
}

/// Spreads 32 bits to the even places of 64.
fn spread(bits: u32) -> u64 {
    let mut x = u64::from(bits);
    x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    x = (x | x << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    x = (x | x << 2) & 0x3333_3333_3333_3333;
    (x | x << 1) & 0x5555_5555_5555_5555
}

/// Collects the even places of 64 bits.
fn squeeze(bits: u64) -> u32 {
    let mut x = bits & 0x5555_5555_5555_5555;
    x = (x | x >> 1) & 0x3333_3333_3333_3333;
    x = (x | x >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
    x = (x | x >> 4) & 0x00ff_00ff_00ff_00ff;
    x = (x | x >> 8) & 0x0000_ffff_0000_ffff;
    (x | x >> 16) as u32
}

/// A cell of the grid: the first `step` bits of each coordinate, interleaved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    bits: u64,
    step: u32,
}

/// The borders of a cell or a search, in degrees.
#[derive(Debug, Clone, Copy)]
struct Area {
    west: f64,
    east: f64,
    south: f64,
    north: f64,
}

impl Cell {
    /// The cell of a position, where latitudes go to `latitude_max`.
    fn of(position: Position, step: u32, latitude_max: f64) -> Cell {
        let size = (1u64 << step) as f64;
        let latitude = (position.latitude + latitude_max) / (latitude_max + latitude_max);
        let longitude = (position.longitude + LONGITUDE_MAX) / (LONGITUDE_MAX + LONGITUDE_MAX);
        let bits = spread((latitude * size) as u32) | spread((longitude * size) as u32) << 1;
        Cell { bits, step }
    }

    fn area(self) -> Area {
        let size = (1u64 << self.step) as f64;
        let border = |index: f64, max: f64| -max + (index / size) * (max + max);
        let latitude = f64::from(squeeze(self.bits));
        let longitude = f64::from(squeeze(self.bits >> 1));
        Area {
            west: border(longitude, LONGITUDE_MAX),
            east: border(longitude + 1.0, LONGITUDE_MAX),
            south: border(latitude, LATITUDE_MAX),
            north: border(latitude + 1.0, LATITUDE_MAX),
        }
    }

    /// The cell so many to the east and north; the grid is a torus.
    fn neighbour(self, east: i32, north: i32) -> Cell {
        let mask = ((1u64 << self.step) - 1) as u32;
        let x = squeeze(self.bits >> 1).wrapping_add_signed(east) & mask;
        let y = squeeze(self.bits).wrapping_add_signed(north) & mask;
        Cell { bits: spread(x) << 1 | spread(y), step: self.step }
    }

    /// The scores of all positions inside: from the first to before the second.
    fn scores(self) -> (u64, u64) {
        let shift = 52 - self.step * 2;
        (self.bits << shift, (self.bits + 1) << shift)
    }
}

/// What a search covers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Extent {
    /// All within this distance.
    Radius(f64),
    /// A box of this width and height around the center, along meridian and parallel.
    Box {
        /// West to east.
        width: f64,
        /// South to north.
        height: f64,
    },
}

/// The shape of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Its middle.
    pub center: Position,
    /// Its size, in units of `unit_m`.
    pub extent: Extent,
    /// Meters in one unit.
    pub unit_m: f64,
}

impl Shape {
    /// The meters from the center to a position, if that lies in the shape.
    pub fn distance_to(&self, position: Position) -> Option<f64> {
        match self.extent {
            Extent::Radius(radius) => {
                let distance = self.center.distance_m(position);
                // What is not a number counts as inside, as in Redis.
                let outside = distance > radius * self.unit_m;
                (!outside).then_some(distance)
            }
            Extent::Box { width, height } => {
                let (width_m, height_m) = (width * self.unit_m, height * self.unit_m);
                if latitude_distance_m(position.latitude, self.center.latitude) > height_m / 2.0 {
                    return None;
                }
                let beside = Position { longitude: self.center.longitude, ..position };
                if position.distance_m(beside) > width_m / 2.0 {
                    return None;
                }
                Some(self.center.distance_m(position))
            }
        }
    }

    /// Half the height and half the width, in meters.
    fn half_m(&self) -> (f64, f64) {
        match self.extent {
            Extent::Radius(radius) => (self.unit_m * radius, self.unit_m * radius),
            Extent::Box { width, height } => {
                (self.unit_m * (height / 2.0), self.unit_m * (width / 2.0))
            }
        }
    }

    /// Meters from the center to the farthest point.
    fn reach_m(&self) -> f64 {
        let reach = match self.extent {
            Extent::Radius(radius) => radius,
            Extent::Box { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
        };
        reach * self.unit_m
    }

    /// The box around the shape in degrees. Towards the poles a degree of longitude gets
    /// shorter: the wider of the two edges is the one nearer to the pole.
    fn bounds(&self) -> Area {
        let Position { longitude, latitude } = self.center;
        let (height_m, width_m) = self.half_m();
        let latitude_delta = degrees(height_m / EARTH_RADIUS_M);
        let edge =
            if latitude < 0.0 { latitude - latitude_delta } else { latitude + latitude_delta };
        let longitude_delta = degrees(width_m / EARTH_RADIUS_M / radians(edge).cos());
        Area {
            west: longitude - longitude_delta,
            east: longitude + longitude_delta,
            south: latitude - latitude_delta,
            north: latitude + latitude_delta,
        }
    }

    /// Ranges of scores, first included, second not, that hold every member in the shape (and
    /// others), in the order in which Redis looks through them.
    pub fn score_ranges(&self) -> Vec<(u64, u64)> {
        let bounds = self.bounds();
        let cell = |step: u32| Cell::of(self.center, step, LATITUDE_MAX);
        let mut step = step_for(self.reach_m(), self.center.latitude);
        if step > 1 && !covers(cell(step), bounds) {
            step -= 1;
        }
        let center = cell(step);
        let area = center.area();
        // A neighbour on a side where the center's own cell goes beyond the bounds is of no use.
        // With two cells to a side, those to the east and to the west are the same.
        let small = step >= 2;
        let north = !(small && area.north > bounds.north);
        let south = !(small && area.south < bounds.south);
        let east = !(small && area.east > bounds.east);
        let west = !(small && area.west < bounds.west);
        let neighbours = [
            (true, 0, 0),
            (north, 0, 1),
            (south, 0, -1),
            (east, 1, 0),
            (west, -1, 0),
            (north && east, 1, 1),
            (north && west, -1, 1),
            (south && east, 1, -1),
            (south && west, -1, -1),
        ];
        let mut cells: Vec<Cell> = Vec::with_capacity(9);
        for (wanted, x, y) in neighbours {
            let cell = center.neighbour(x, y);
            // Only the cell looked through last is compared, and never the first: as Redis does.
            let again = cells.len() > 1 && cells.last() == Some(&cell);
            if wanted && !again {
                cells.push(cell);
            }
        }
        cells.into_iter().map(Cell::scores).collect()
    }
}

/// Bits of a coordinate such that nine cells cover a search of this reach.
fn step_for(reach_m: f64, latitude: f64) -> u32 {
    if reach_m == 0.0 {
        return STEP_MAX;
    }
    let mut step = 1i32;
    let mut reach_m = reach_m;
    while reach_m < MERCATOR_MAX {
        reach_m *= 2.0;
        step += 1;
    }
    step -= 2;
    // Cells get narrow towards the poles.
    step -= i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    step.clamp(1, STEP_MAX as i32) as u32
}

/// Whether the cell's neighbours reach beyond the bounds on all sides. (Near the poles a bound may
/// be no number; then it counts as reached.)
fn covers(cell: Cell, bounds: Area) -> bool {
    let falls_short = cell.neighbour(0, 1).area().north < bounds.north
        || cell.neighbour(0, -1).area().south > bounds.south
        || cell.neighbour(1, 0).area().east < bounds.east
        || cell.neighbour(-1, 0).area().west > bounds.west;
    !falls_short
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PALERMO: Position = Position { longitude: 13.361389, latitude: 38.115556 };
    const CATANIA: Position = Position { longitude: 15.087269, latitude: 37.502669 };

    #[test]
    fn known_places_are_where_redis_has_them() {
        assert_eq!(PALERMO.score(), 3479099956230698);
        assert_eq!(CATANIA.score(), 3479447370796909);
        let [palermo, catania] = [3479099956230698.0, 3479447370796909.0].map(Position::of_score);
        assert_eq!(palermo.longitude, 13.361389338970184);
        assert_eq!(palermo.latitude, 38.1155563954963);
        assert_eq!(&palermo.geohash(), b"sqc8b49rny0");
        assert_eq!(&catania.geohash(), b"sqdtr74hyu0");
        assert_eq!(format!("{:.4}", palermo.distance_m(catania)), "166274.1516");
    }

    fn position() -> impl Strategy<Value = Position> {
        (-180.0..=180.0f64, -LATITUDE_MAX..=LATITUDE_MAX)
            .prop_map(|(longitude, latitude)| Position { longitude, latitude })
    }

    proptest! {
        #[test]
        fn scores_lead_back(position in position()) {
            let back = Position::of_score(position.score() as f64);
            prop_assert!(position.distance_m(back) < 1.0);
            prop_assert_eq!(back.score(), position.score());
        }

        #[test]
        fn searches_find_what_is_near(
            center in position(),
            reach in 1.0..1_000_000.0f64,
            bearing in 0.0..(2.0 * PI),
            part in 0.0..0.99f64,
        ) {
            // Not too near to the poles, where the nine cells may leave something out.
            prop_assume!(center.latitude.abs() < 60.0);
            let latitude = center.latitude + degrees(reach * part * bearing.cos() / EARTH_RADIUS_M);
            let longitude = center.longitude
                + degrees(reach * part * bearing.sin() / EARTH_RADIUS_M / radians(latitude).cos());
            let there = Position { longitude, latitude };
            prop_assume!(there.is_valid());
            let shape = Shape { center, extent: Extent::Radius(reach), unit_m: 1.0 };
            prop_assume!(shape.distance_to(there).is_some());
            let score = there.score();
            let ranges = shape.score_ranges();
            prop_assert!(ranges.iter().any(|(from, to)| (*from..*to).contains(&score)));
        }
    }
}

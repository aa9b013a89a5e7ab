//! Products of matrices in plain memory. Both sides are packed first: six rows of the left one and sixteen
//! columns of the right one lie side by side then, and their 96 sums stay in registers. Every sum is added up
//! in one order, on one thread.

use pulp::{Arch, Simd, WithSimd};

/// Rows of a tile of sums …
const ROWS: usize = 6;
/// … and columns: twelve of the sixteen registers that AVX2 has.
const COLUMNS: usize = 16;

/// A side of a product: `LANES` of its rows or columns lie side by side, for each step along the sums.
#[derive(Debug, Clone, Default)]
pub(crate) struct Packed<const LANES: usize> {
    strips: Vec<[f32; LANES]>,
    /// Numbers that a sum has.
    depth: usize,
    /// Rows of the left side, columns of the right one.
    lanes: usize,
}

/// The left side.
pub(crate) type Left = Packed<ROWS>;
/// The right side.
pub(crate) type Right = Packed<COLUMNS>;

impl<const LANES: usize> Packed<LANES> {
    /// Packs a row-major matrix whose rows are the lanes: as wide as sums are deep.
    pub(crate) fn pack_rows(&mut self, matrix: &[f32], depth: usize) {
        self.resize(depth, matrix.len() / depth.max(1));
        if depth == 0 {
            return;
        }
        let blocks = matrix.chunks(LANES * depth).zip(self.strips.chunks_exact_mut(depth));
        for (rows, strips) in blocks {
            if rows.len() == LANES * depth {
                let lanes: [&[f32]; LANES] =
                    std::array::from_fn(|lane| &rows[lane * depth..(lane + 1) * depth]);
                for (step, strip) in strips.iter_mut().enumerate() {
                    *strip = std::array::from_fn(|lane| lanes[lane][step]);
                }
            } else {
                strips.fill([0.0; LANES]);
                for (lane, row) in rows.chunks_exact(depth).enumerate() {
                    strips.iter_mut().zip(row).for_each(|(strip, value)| strip[lane] = *value);
                }
            }
        }
    }

    /// Packs a row-major matrix whose columns are the lanes: it has so many.
    pub(crate) fn pack_columns(&mut self, matrix: &[f32], lanes: usize) {
        let depth = matrix.len() / lanes.max(1);
        self.resize(depth, lanes);
        if depth == 0 {
            return;
        }
        for (block, strips) in self.strips.chunks_exact_mut(depth).enumerate() {
            let columns = block * LANES..lanes.min((block + 1) * LANES);
            let rows = strips.iter_mut().zip(matrix.chunks_exact(lanes));
            for (strip, row) in rows {
                let row = &row[columns.clone()];
                match <&[f32; LANES]>::try_from(row) {
                    Ok(row) => *strip = *row,
                    Err(_) => {
                        *strip = [0.0; LANES];
                        strip[..row.len()].copy_from_slice(row);
                    }
                }
            }
        }
    }

    fn resize(&mut self, depth: usize, lanes: usize) {
        (self.depth, self.lanes) = (depth, lanes);
        self.strips.resize(lanes.div_ceil(LANES) * depth, [0.0; LANES]);
    }
}

/// Writes left × right, and a number for each column beside it, as a row-major matrix. Both sides have one depth.
pub(crate) fn multiply(left: &Left, right: &Right, bias: Option<&[f32]>, product: &mut [f32]) {
    Arch::new().dispatch(Product { left, right, bias, product });
}

/// A product, as a type: a closure would not be inlined, and lose the wider instructions.
struct Product<'a> {
    left: &'a Left,
    right: &'a Right,
    bias: Option<&'a [f32]>,
    product: &'a mut [f32],
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if S::F32_LANES == COLUMNS / 2 {
            self.write(|left, right| wide_tile(simd, left, right));
        } else {
            self.write(tile);
        }
    }
}

/// The sums of six rows and sixteen columns.
type Tile = [[f32; COLUMNS]; ROWS];

impl Product<'_> {
    #[inline(always)]
    fn write(self, tile: impl Fn(&[[f32; ROWS]], &[[f32; COLUMNS]]) -> Tile) {
        let Product { left, right, bias, product } = self;
        let (depth, width) = (left.depth.max(1), right.lanes);
        let panels = right.strips.chunks_exact(depth).enumerate();
        for (panel, strips) in panels {
            let columns = panel * COLUMNS..width.min((panel + 1) * COLUMNS);
            let mut start = [0f32; COLUMNS];
            if let Some(bias) = bias {
                start[..columns.len()].copy_from_slice(&bias[columns.clone()]);
            }
            let blocks = left.strips.chunks_exact(depth).zip(product.chunks_mut(ROWS * width));
            for (rows, block) in blocks {
                let sums = tile(rows, strips);
                for (row, sums) in block.chunks_exact_mut(width).zip(&sums) {
                    let row = &mut row[columns.clone()];
                    for ((value, sum), start) in row.iter_mut().zip(sums).zip(&start) {
                        *value = sum + start;
                    }
                }
            }
        }
    }
}

/// With vectors of half as many lanes as there are columns. Written out row by row: the compiler leaves sums in memory
/// that it does not see one by one.
#[inline(always)]
fn wide_tile<S: Simd>(simd: S, left: &[[f32; ROWS]], right: &[[f32; COLUMNS]]) -> Tile {
    let zero = simd.splat_f32s(0.0);
    let [mut a, mut b, mut c, mut d, mut e, mut f] = [[zero; 2]; ROWS];
    for (left, right) in left.iter().zip(right) {
        let &[low, high] = S::as_simd_f32s(right).0 else { break };
        let add = |number: f32, [of_low, of_high]: [S::f32s; 2]| {
            let number = simd.splat_f32s(number);
            let of_low = simd.mul_add_e_f32s(number, low, of_low);
            [of_low, simd.mul_add_e_f32s(number, high, of_high)]
        };
        a = add(left[0], a);
        b = add(left[1], b);
        c = add(left[2], c);
        d = add(left[3], d);
        e = add(left[4], e);
        f = add(left[5], f);
    }
    let mut sums = [[0f32; COLUMNS]; ROWS];
    for (sums, vectors) in sums.iter_mut().zip([a, b, c, d, e, f]) {
        S::as_mut_simd_f32s(sums).0.copy_from_slice(&vectors);
    }
    sums
}

/// With any vectors, or none.
fn tile(left: &[[f32; ROWS]], right: &[[f32; COLUMNS]]) -> Tile {
    let mut sums = [[0f32; COLUMNS]; ROWS];
    for (left, right) in left.iter().zip(right) {
        for (sums, left) in sums.iter_mut().zip(left) {
            sums.iter_mut().zip(right).for_each(|(sum, right)| *sum += left * right);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(rows: usize, columns: usize, salt: f32) -> Vec<f32> {
        (0..rows * columns).map(|index| (index as f32 * 0.7 + salt).sin()).collect()
    }

    /// Row-major `left` (rows × depth) times `right` (depth × columns), one number at a time, in 64 bits.
    fn expected(left: &[f32], right: &[f32], depth: usize) -> Vec<f64> {
        let columns = right.len() / depth;
        let cell = |row: &[f32], column: usize| {
            let terms = row.iter().zip(right[column..].iter().step_by(columns));
            terms.map(|(left, right)| f64::from(*left) * f64::from(*right)).sum()
        };
        let rows = left.chunks_exact(depth);
        rows.flat_map(|row| (0..columns).map(move |column| cell(row, column))).collect()
    }

    fn transposed(matrix: &[f32], columns: usize) -> Vec<f32> {
        (0..columns).flat_map(|column| matrix[column..].iter().step_by(columns).copied()).collect()
    }

    #[test]
    fn tiles_are_the_same_with_any_vectors() {
        let (left, right) = (matrix(9, ROWS, 0.0), matrix(9, COLUMNS, 1.0));
        let (left, right) = (left.as_chunks::<ROWS>().0, right.as_chunks::<COLUMNS>().0);
        let mut product = vec![0.0; ROWS * COLUMNS];
        let pack = |strips: &[[f32; ROWS]]| Left { strips: strips.to_vec(), depth: 9, lanes: ROWS };
        let right_of = Right { strips: right.to_vec(), depth: 9, lanes: COLUMNS };
        multiply(&pack(left), &right_of, None, &mut product);
        for (found, expected) in product.iter().zip(tile(left, right).as_flattened()) {
            assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
        }
    }

    #[test]
    fn products_are_those_of_single_numbers() {
        for (rows, depth, columns) in [(1, 1, 1), (6, 3, 16), (13, 7, 37), (128, 60, 75), (5, 9, 3)]
        {
            let (left, right) = (matrix(rows, depth, 0.0), matrix(depth, columns, 1.0));
            let bias = matrix(1, columns, 2.0);
            let expected = expected(&left, &right, depth);
            let (mut lefts, mut rights) = ([Left::default(), Left::default()], [const { None }; 2]);
            lefts[0].pack_rows(&left, depth);
            lefts[1].pack_columns(&transposed(&left, depth), rows);
            let mut right_of = Right::default();
            right_of.pack_columns(&right, columns);
            rights[0] = Some(right_of.clone());
            right_of.pack_rows(&transposed(&right, columns), depth);
            rights[1] = Some(right_of);
            for left in &lefts {
                for right in rights.iter().flatten() {
                    let mut found = vec![f32::NAN; rows * columns];
                    multiply(left, right, Some(&bias), &mut found);
                    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
                        let expected = expected + f64::from(bias[index % columns]);
                        assert!((f64::from(*found) - expected).abs() < 1e-4, "{index}: {found}");
                    }
                }
            }
        }
    }
}

//! A content-defined chunker with a cyclic polynomial ("buzhash"), like boxo's `buzhash` chunker.

use super::cut::Cut;

/// Smallest chunk, in bytes, except the last one of a file.
pub(crate) const MIN_BYTES: usize = 128 * 1024;
/// Largest chunk, in bytes.
pub(crate) const MAX_BYTES: usize = 512 * 1024;
/// A chunk ends where these bits of the hash are zero, which takes another 128 KiB on average.
const MASK: u32 = (1 << 17) - 1;
/// Size of the hashed window, in bytes. The hash has as many bits, so a byte has been rotated once around when it
/// leaves.
const WINDOW_BYTES: usize = u32::BITS as usize;

/// An incremental search for the end of each chunk.
#[derive(Debug, Default)]
pub(crate) struct Buzhash {
    /// Number of bytes of the current chunk so far.
    count: usize,
    hash: u32,
    /// The last bytes that were hashed, each at its position in the chunk modulo the window size.
    window: [u8; WINDOW_BYTES],
}

impl Buzhash {
    /// Returns the bytes at the front of `piece` that belong to the current chunk.
    pub(crate) fn scan(&mut self, piece: &[u8]) -> Cut {
        // Below the minimum size, only the bytes of the first window affect the hash.
        let skipped = (MIN_BYTES - WINDOW_BYTES).saturating_sub(self.count).min(piece.len());
        self.count += skipped;
        for (len, &byte) in (skipped + 1..).zip(&piece[skipped..]) {
            let leaving = std::mem::replace(&mut self.window[self.count % WINDOW_BYTES], byte);
            self.hash = self.hash.rotate_left(1) ^ WORDS[usize::from(byte)];
            if self.count >= MIN_BYTES {
                self.hash ^= WORDS[usize::from(leaving)];
            }
            self.count += 1;
            if self.count >= MIN_BYTES && (self.hash & MASK == 0 || self.count == MAX_BYTES) {
                *self = Self::default();
                return Cut { len, ends: true };
            }
        }
        Cut { len: piece.len(), ends: false }
    }
}

/// The word of each byte: random numbers that are part of the format.
#[rustfmt::skip]
const WORDS: [u32; 256] = [
    0x6236_e7d5, 0x1027_9b0b, 0x7281_8182, 0xdc52_6514, 0x2fd4_1e3d, 0x777e_f8c8, 0x83ee_5285, 0x2c8f_3637,
    0x2f04_9c1a, 0x57df_9791, 0x9207_151f, 0x9b54_4818, 0x74ee_f658, 0x2028_ca60, 0x0271_d91a, 0x27ae_587e,
    0xecf9_fa5f, 0x236e_71cd, 0xf43a_8a2e, 0x0bb1_3380, 0x9e57_912c, 0x89a2_6cdb, 0x9fcf_3d71, 0xa86d_a6f1,
    0x9c49_f376, 0x346a_ecc7, 0xf094_a9ee, 0xea99_e9cb, 0xb017_13c6, 0x088a_cffb, 0x2960_a0fb, 0x344a_626c,
    0x7ff2_2a46, 0x6d7a_1aa5, 0x6a71_4916, 0x41d4_54ca, 0x8325_b830, 0x0b65_f563, 0x447f_ecca, 0xf9d0_ea5e,
    0xc1d9_d3d4, 0xcb5e_c574, 0x55aa_e902, 0x86ed_c0e7, 0x0d3a_9e33, 0xe70d_c1e1, 0xe3c5_f639, 0x9b43_140a,
    0xc649_0ac5, 0x5e40_30fb, 0x8e97_6dd5, 0xa874_68ea, 0xf830_ef6f, 0xcc1e_d5a5, 0x611f_4e78, 0xddd1_1905,
    0xf261_3904, 0x566c_67b9, 0x905a_5ccc, 0x7b37_b3a4, 0x4b53_898a, 0x6b8f_d29d, 0xaad8_1575, 0x511b_e414,
    0x3cfa_c1e7, 0x8029_a179, 0xd40e_feda, 0x0738_0e02, 0xdc9b_effd, 0x2d04_9082, 0x99bc_7831, 0xff50_02a8,
    0x21ce_7646, 0x01cd_049b, 0x0f43_994f, 0xc3c6_c5a5, 0xbbda_5f50, 0x0ec1_5ec7, 0x9adb_19b6, 0x0c1e_80b9,
    0xb9b5_2968, 0xae16_2419, 0x2542_b405, 0x91a4_2e9d, 0x6be0_f668, 0x6ed7_a6b9, 0xbc27_77b4, 0xe162_ce56,
    0x4266_aad5, 0x60fd_b704, 0x66f8_32a5, 0x9595_f6ca, 0xfee8_3ced, 0x5522_8d99, 0x12bf_0e28, 0x6689_6459,
    0x0789_afda, 0x0282_baa8, 0x2367_a343, 0x5914_91b0, 0x2ff1_a4b1, 0x4107_39b6, 0x9b70_55a0, 0x2e0e_b229,
    0x24fc_8252, 0x3327_d3df, 0xb078_2669, 0x1c62_e069, 0x7f50_3101, 0xf505_93ae, 0xd9eb_275d, 0xe00e_b678,
    0x5917_ccde, 0x97b9_660a, 0xdd06_202d, 0xed22_9e22, 0xa9c7_35bf, 0xd631_6fe6, 0x6fc7_2e4c, 0x0206_dfa2,
    0xd6b1_5c5a, 0x69d8_7b49, 0x09c9_7745, 0x1344_5d61, 0x35a9_75aa, 0x859a_a9b9, 0x6538_0013, 0xd1fb_6391,
    0xc292_55fd, 0x784a_3b91, 0xb9e7_4c26, 0x63ce_4d40, 0xc07c_be9e, 0xe6e4_529e, 0x0fb3_632f, 0x9438_d9c9,
    0x682f_94a8, 0xf8fd_4611, 0x257e_c1ed, 0x475c_e3d6, 0x60ee_2db1, 0x2afa_b002, 0x2b9e_4878, 0x86b3_40de,
    0x1482_fdca, 0xfe41_b3bf, 0xd4a4_12b0, 0xe09d_b98c, 0xc1af_5d53, 0x7e55_e25f, 0xd334_6b38, 0xb7a1_2cbd,
    0x9c68_27ba, 0x71f7_8bee, 0x8c3a_0f52, 0x1504_91b0, 0xf26d_e912, 0x233e_3a4e, 0xd309_ebba, 0xa0a9_e0ff,
    0xca2b_5921, 0xeeb9_893c, 0x3382_9e88, 0x9870_cc2a, 0x23c4_b9d0, 0xeba3_2ea3, 0xbdac_4d22, 0x3bc8_c44c,
    0x1e8d_0397, 0xf932_7735, 0x783b_009f, 0x0eb8_3742, 0x2621_dc71, 0xed01_7d03, 0x5c76_0aa1, 0x5a69_814b,
    0x96e3_047f, 0xa93c_9cde, 0x615c_86f5, 0xb432_2aa5, 0x4225_534d, 0x0d2e_2de3, 0xccfc_cc4b, 0x0bac_2a57,
    0xf0a0_6d04, 0xbc78_d737, 0xf2d1_f766, 0xf5a7_953c, 0xbcdf_da85, 0x5213_b7d5, 0xbce8_a328, 0xd38f_5f18,
    0xdb09_4244, 0xfe57_1253, 0x317f_a7ee, 0x4a32_4f43, 0x3ffc_39d9, 0x51b3_fa8e, 0x7a4b_ee9f, 0x78bb_c682,
    0x9f5c_0350, 0x02fe_286c, 0x245a_b686, 0xed6b_f7d7, 0x0ac4_988a, 0x3fe0_10fa, 0xc65f_e369, 0xa457_49cb,
    0x2b84_e537, 0xde9f_f363, 0x2054_0f9a, 0xaa8c_9b34, 0x5bc4_76b3, 0x1d57_4bd7, 0x9291_00ad, 0x4721_de4d,
    0x27df_1b05, 0x58b1_8546, 0xb7e7_6764, 0xdf90_4e58, 0x97af_57a1, 0xbd4d_c433, 0xa625_6dfd, 0xf639_98f3,
    0xf1e0_5833, 0xe20a_cf26, 0xf57f_d9d6, 0x9030_0b4d, 0x89df_4290, 0x68d0_1cbc, 0xcf89_3ee3, 0xcc42_a046,
    0x778e_181b, 0x6726_5c76, 0xe981_a4c4, 0x8299_1da1, 0x708f_7294, 0xe6e2_ae62, 0xfc44_1870, 0x95e1_b0b6,
    0x0445_f825, 0x5a93_b47f, 0x5e9c_f4be, 0x84da_71e7, 0x9d95_82b0, 0x9bf8_35ef, 0x591f_61e2, 0x4332_5985,
    0x5d2d_e32e, 0x8d8f_bf0f, 0x95b3_0f38, 0x07ad_5b6e, 0x4e93_4edf, 0x3cd4_990e, 0x9053_e259, 0x5c41_857d,
];

//! Diffie-Hellman groups. `[RFC 7919]`

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use zeroize::{Zeroize as _, Zeroizing};

/// A Diffie-Hellman group, which augments the challenges of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// No group: challenges are not augmented. Code 00h.
    Null,
    /// ffdhe2048, code 01h.
    Ffdhe2048,
    /// ffdhe3072, code 02h.
    Ffdhe3072,
    /// ffdhe4096, code 03h.
    Ffdhe4096,
    /// ffdhe6144, code 04h.
    Ffdhe6144,
    /// ffdhe8192, code 05h.
    Ffdhe8192,
}

impl Group {
    /// All groups, by code.
    pub const ALL: [Self; 6] = [
        Self::Null,
        Self::Ffdhe2048,
        Self::Ffdhe3072,
        Self::Ffdhe4096,
        Self::Ffdhe6144,
        Self::Ffdhe8192,
    ];

    /// Returns the group with this code, 0 to 5.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Returns the code, 0 to 5.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the name: `NULL` or that of RFC 7919.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Ffdhe2048 => "ffdhe2048",
            Self::Ffdhe3072 => "ffdhe3072",
            Self::Ffdhe4096 => "ffdhe4096",
            Self::Ffdhe6144 => "ffdhe6144",
            Self::Ffdhe8192 => "ffdhe8192",
        }
    }

    /// Returns the length of public values and shared secrets in bytes; 0 for NULL.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 256,
            Self::Ffdhe3072 => 384,
            Self::Ffdhe4096 => 512,
            Self::Ffdhe6144 => 768,
            Self::Ffdhe8192 => 1024,
        }
    }

    /// Returns the length of private exponents in bytes: at least what RFC 7919, appendix A,
    /// recommends, in whole words.
    #[must_use]
    pub fn exponent_bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 32,
            Self::Ffdhe3072 => 40,
            Self::Ffdhe4096 | Self::Ffdhe6144 => 48,
            Self::Ffdhe8192 => 56,
        }
    }

    /// Returns the public value of a private exponent of [`exponent_bytes`](Self::exponent_bytes),
    /// as long as the prime; empty for NULL.
    #[must_use]
    pub fn public(self, exponent: &[u8]) -> Vec<u8> {
        match self {
            Self::Null => Vec::new(),
            _ => self.power(&[2], exponent).to_vec(),
        }
    }

    /// Returns the shared secret with the peer's public value, as long as the prime; nothing if the
    /// peer's value is invalid: longer than the prime, or not from 2 to the prime minus 2. `[RFC
    /// 7919 §5.1]`
    #[must_use]
    pub fn shared(self, exponent: &[u8], peer: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        if self == Self::Null {
            return peer.is_empty().then(Zeroizing::default);
        }
        let first = peer.iter().position(|byte| *byte != 0)?;
        let peer = &peer[first..];
        let prime = self.prime();
        let mut last = prime.clone();
        // The prime is odd.
        *last.last_mut()? -= 1;
        let is_big = peer.len() > last.len() || peer.len() == last.len() && peer >= &last[..];
        if peer == [1] || is_big {
            return None;
        }
        Some(self.power(peer, exponent))
    }

    /// `base` to the power of `exponent`, modulo the prime. Takes a time that depends on the lengths
    /// only.
    fn power(self, base: &[u8], exponent: &[u8]) -> Zeroizing<Vec<u8>> {
        let bits = |bytes: usize| u32::try_from(8 * bytes).expect("at most 8192");
        let number = |bytes: &[u8], bits| BoxedUint::from_be_slice(bytes, bits).expect("it fits");
        let prime = number(&self.prime(), bits(self.bytes()));
        let prime = Odd::new(prime).into_option().expect("primes are odd");
        let field = BoxedMontyParams::new_vartime(prime);
        let base = BoxedMontyForm::new(number(base, bits(self.bytes())), &field);
        let mut exponent = number(exponent, bits(exponent.len()));
        let mut power = base.pow(&exponent);
        let mut result = power.retrieve();
        let bytes = Zeroizing::new(result.to_be_bytes().into_vec());
        exponent.zeroize();
        power.zeroize();
        result.zeroize();
        bytes
    }

    /// The prime in big-endian bytes: 64 ones, then the leading bits of e plus a constant of the
    /// group, then 64 ones. `[RFC 7919, appendix A]`
    fn prime(self) -> Vec<u8> {
        let constant: u32 = match self {
            Self::Null => return Vec::new(),
            Self::Ffdhe2048 => 560_316,
            Self::Ffdhe3072 => 2_625_351,
            Self::Ffdhe4096 => 5_736_041,
            Self::Ffdhe6144 => 15_705_020,
            Self::Ffdhe8192 => 10_965_728,
        };
        let middle = &E.as_bytes()[..2 * (self.bytes() - 16)];
        let digit = |digit: u8| char::from(digit).to_digit(16).expect("of our own");
        let pairs = middle.chunks_exact(2);
        let mut prime = vec![0xff; 8];
        let byte = |pair: &[u8]| u8::try_from(16 * digit(pair[0]) + digit(pair[1]));
        prime.extend(pairs.map(|pair| byte(pair).expect("two digits")));
        // The -1 of the formula makes the last 64 bits ones.
        let mut carry = u64::from(constant - 1);
        for byte in prime.iter_mut().rev() {
            carry += u64::from(*byte);
            *byte = u8::try_from(carry & 0xff).expect("one byte");
            carry >>= 8;
        }
        prime.extend([0xff; 8]);
        prime
    }
}

/// The leading 8064 bits of e = 2.718…, in hexadecimal digits.
const E: &str = "\
    adf85458a2bb4a9aafdc5620273d3cf1d8b9c583ce2d3695a9e13641146433fbcc939dce249b3ef97d2fe363630c75d8\
    f681b202aec4617ad3df1ed5d5fd65612433f51f5f066ed0856365553ded1af3b557135e7f57c935984f0c70e0e68b77\
    e2a689daf3efe8721df158a136ade73530acca4f483a797abc0ab182b324fb61d108a94bb2c8e3fbb96adab760d7f468\
    1d4f42a3de394df4ae56ede76372bb190b07a7c8ee0a6d709e02fce1cdf7e2ecc03404cd28342f619172fe9ce98583ff\
    8e4f1232eef28183c3fe3b1b4c6fad733bb5fcbc2ec22005c58ef1837d1683b2c6f34a26c1b2effa886b4238611fcfdc\
    de355b3b6519035bbc34f4def99c023861b46fc9d6e6c9077ad91d2691f7f7ee598cb0fac186d91caefe130985139270\
    b4130c93bc437944f4fd4452e2d74dd364f2e21e71f54bff5cae82ab9c9df69ee86d2bc522363a0dabc521979b0deada\
    1dbf9a42d5c4484e0abcd06bfa53ddef3c1b20ee3fd59d7c25e41d2b669e1ef16e6f52c3164df4fb7930e9e4e58857b6\
    ac7d5f42d69f6d187763cf1d5503400487f55ba57e31cc7a7135c886efb4318aed6a1e012d9e6832a907600a918130c4\
    6dc778f971ad0038092999a333cb8b7a1a1db93d7140003c2a4ecea9f98d0acc0a8291cdcec97dcf8ec9b55a7f88a46b\
    4db5a851f44182e1c68a007e5e0dd9020bfd64b645036c7a4e677d2c38532a3a23ba4442caf53ea63bb454329b7624c8\
    917bdd64b1c0fd4cb38e8c334c701c3acdad0657fccfec719b1f5c3e4e46041f388147fb4cfdb477a52471f7a9a96910\
    b855322edb6340d8a00ef092350511e30abec1fff9e3a26e7fb29f8c183023c3587e38da0077d9b4763e4e4b94b2bbc1\
    94c6651e77caf992eeaac0232a281bf6b3a739c1226116820ae8db5847a67cbef9c9091b462d538cd72b03746ae77f5e\
    62292c311562a846505dc82db854338ae49f5235c95b91178ccf2dd5cacef403ec9d1810c6272b045b3b71f9dc6b80d6\
    3fdd4a8e9adb1e6962a69526d43161c1a41d570d7938dad4a40e329ccff46aaa36ad004cf600c8381e425a31d951ae64\
    fdb23fcec9509d43687feb69edd1cc5e0b8cc3bdf64b10ef86b63142a3ab8829555b2f747c932665cb2c0f1cc01bd702\
    29388839d2af05e454504ac78b7582822846c0ba35c35f5c59160cc046fd8251541fc68c9c86b022bb7099876a460e74\
    51a8a93109703fee1c217e6c3826e52c51aa691e0e423cfc99e9e31650c1217b624816cdad9a95f9d5b8019488d9c0a0\
    a1fe3075a577e23183f81d4a3f2fa4571efc8ce0ba8a4fe8b6855dfe72b0a66eded2fbabfbe58a30fafabe1c5d71a87e\
    2f741ef8c1fe86fea6bbfde530677f0d97d11d49f7a8443d0822e506a9f4614e011e2a94838ff88cd68c8bb7c51eef6d";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hash;
    use crate::hash::hex;

    /// Digests of the primes, which were tested to be safe primes, as of their formula's unique
    /// constants.
    #[test]
    fn primes_are_those_of_the_rfc() {
        for (group, digest) in [
            (
                Group::Ffdhe2048,
                "9cd3b7f336872f46c09428d1bbc19877a4d440512cda8d1c1cf0cd6e33698966",
            ),
            (
                Group::Ffdhe3072,
                "0eaf67db3a839156d5013494a5318a772b5697d270d721f37f092efc69ea5a17",
            ),
            (
                Group::Ffdhe4096,
                "4648414224ac881b3d0dc59b466f96d06a558278776807797ecf1f66ff397b3e",
            ),
            (
                Group::Ffdhe6144,
                "227ac9066b3ddd9e193670cda2388fa884f65ba0cf98b742d1fe77a6687c79c7",
            ),
            (
                Group::Ffdhe8192,
                "770b14efaf6f049929c523113b3fa99a8d11dab1b18af3609590122075d19833",
            ),
        ] {
            let prime = group.prime();
            assert_eq!(prime.len(), group.bytes());
            assert_eq!(Hash::Sha256.digest(&prime).as_ref(), hex(digest));
        }
    }

    #[test]
    fn both_ends_share_a_secret() {
        for group in &Group::ALL[1..] {
            let (ours, theirs) = (vec![0x5a; group.exponent_bytes()], vec![0xc3; 32]);
            let ours_public = group.public(&ours);
            assert_eq!(ours_public.len(), group.bytes());
            let shared = group.shared(&ours, &group.public(&theirs)).unwrap();
            assert_eq!(shared, group.shared(&theirs, &ours_public).unwrap());
            assert_eq!(shared.len(), group.bytes());
        }
        assert!(Group::Null.shared(&[], &[]).unwrap().is_empty());
        assert_eq!(Group::Null.shared(&[], &[1]), None);
    }

    #[test]
    fn values_outside_of_the_group_are_refused() {
        let group = Group::Ffdhe2048;
        let exponent = vec![7; group.exponent_bytes()];
        let prime = group.prime();
        let minus = |difference: u8| {
            let mut value = prime.clone();
            *value.last_mut().unwrap() -= difference;
            value
        };
        let longer = [&[1][..], &prime].concat();
        for value in [&[][..], &[0, 0], &[0, 1], &prime, &minus(1), &longer] {
            assert_eq!(group.shared(&exponent, value), None, "{value:x?}");
        }
        assert!(group.shared(&exponent, &minus(2)).is_some());
        assert!(group.shared(&exponent, &[2]).is_some());
    }
}

// A wake-up by datagram or NOTIFY is decoded as it was encoded, and proved only by the session's
// secret. Every program on the machine, and every role of the database, may send other texts.

#include "fuzz/target.hpp"
#include "lock/wakeup/hint.hpp"

#include <algorithm>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using rowlock::wakeup::announced_grant;
    using rowlock::wakeup::decode_look;
    using rowlock::wakeup::decode_wakeup;
    using rowlock::wakeup::encode_look;
    using rowlock::wakeup::encode_wakeup;
    using rowlock::wakeup::is_proved;
    const std::string secret = "0123456789abcdef0123456789abcdef";
    const std::string foreign = fuzz::input{data, size}.all();
    if (const auto heard = decode_wakeup(foreign)) {
        const auto spaces = std::ranges::count(foreign, ' ');
        fuzz::require(spaces >= 3, "four words", foreign);
        fuzz::require(decode_wakeup(encode_wakeup(*heard, secret)) == heard,
                      "what was understood can be said", foreign);
    }
    if (const auto revision = decode_look(foreign)) {
        fuzz::require(!decode_wakeup(foreign), "one or the other", foreign);
        fuzz::require(decode_look(encode_look(*revision, secret)) == revision,
                      "what was understood can be said", foreign);
    }
    fuzz::require(!is_proved(foreign, secret), "a foreign proof is not valid", foreign);
    fuzz::input numbers{data, size};
    const announced_grant meant{rowlock::grant_id{numbers.number()}, numbers.number(),
                                numbers.byte() % 2 == 1};
    const std::string said = encode_wakeup(meant, secret);
    fuzz::require(decode_wakeup(said) == meant, "an encoded message is decoded", said);
    fuzz::require(is_proved(said, secret), "an encoded message has a valid proof", said);
    fuzz::require(!is_proved(said, "f123456789abcdef0123456789abcdef"), "by its secret", said);
    fuzz::require(said.size() <= 128, "it fits into a datagram", said);
    return 0;
}

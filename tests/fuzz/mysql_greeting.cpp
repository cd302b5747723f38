// The greeting of a MySQL server, or of any program that listens instead of it: it offers TLS,
// offers none, or is refused.

#include "driver/mysql_greeting.hpp"

#include "fuzz/target.hpp"
#include <rowlock/error.hpp>

#include <algorithm>

namespace {

using fuzz::require;

void any_payload(const std::string& payload) {
    try {
        (void)rowlock::driver::offers_tls(payload);
        require(payload.starts_with('\x0a'), "of another protocol nothing is known", payload);
    } catch (const rowlock::error& refused) {
        require(!std::string_view{refused.what()}.empty(), "a refusal says why", payload);
        require(refused.server_message().size() <= payload.size(), "in the server's words",
                payload);
    }
}

void round_trip(fuzz::input& from) {
    const auto low = static_cast<char>(from.byte());
    const auto high = static_cast<char>(from.byte());
    std::string version = from.line();
    std::erase(version, '\0');
    std::string payload = "\x0a" + version + '\0' + "1234scramble" + '\0' + low + high;
    payload += from.all();
    const bool offered = (static_cast<unsigned char>(high) & 8U) != 0;
    require(rowlock::driver::offers_tls(payload) == offered, "what is offered is seen", payload);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::input from{data, size};
    if (from.below(2) == 0) {
        any_payload(from.all());
    } else {
        round_trip(from);
    }
    return 0;
}

#include <rowlock/error.hpp>
#include <rowlock/lease_offer.hpp>
#include <rowlock/lock_name.hpp>

#include <charconv>
#include <cstdint>

namespace rowlock {
namespace {

constexpr std::string_view form = "rowlock-offer-1";

error malformed() {
    return {errc::invalid_options,
            "this is not the text of a lease_offer: pass what lease_offer::text() returned, whole"};
}

/// Takes the text up to the next space off the front.
std::string_view take_word(std::string_view& rest) {
    const auto space = rest.find(' ');
    if (space == std::string_view::npos) throw malformed();
    const auto word = rest.substr(0, space);
    rest.remove_prefix(space + 1);
    return word;
}

std::int64_t take_number(std::string_view& rest) {
    const auto word = take_word(rest);
    std::int64_t number = 0;
    const auto* const end = word.data() + word.size();
    const auto [stopped, failed] = std::from_chars(word.data(), end, number);
    if (failed != std::errc{} || stopped != end || number <= 0) throw malformed();
    return number;
}

}  // namespace

std::string lease_offer::text() const {
    std::string line{form};
    for (const auto number :
         {static_cast<std::int64_t>(session), static_cast<std::int64_t>(grant_id), token.value()}) {
        line += ' ' + std::to_string(number);
    }
    return line + ' ' + name;
}

lease_offer lease_offer::parse(std::string_view text) {
    if (take_word(text) != form) throw malformed();
    lease_offer read;
    read.session = rowlock::session_id{take_number(text)};
    read.grant_id = rowlock::grant_id{take_number(text)};
    read.token = fencing_token{take_number(text)};
    read.name = lock_name{text}.str();
    return read;
}

}  // namespace rowlock

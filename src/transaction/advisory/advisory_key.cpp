#include "transaction/advisory/advisory_key.hpp"

#include "base/sha256.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <array>

namespace rowlock {
namespace {

constexpr std::size_t longest_verbatim = 64;  // MySQL's limit; MariaDB's is higher

/// The text to hash. No part may hold a line feed, so that no two pairs make one text.
std::string joined(std::string_view domain, const lock_name& name) {
    validate_advisory_domain(domain);
    return std::string{domain} + "\n" + name.str();
}

/// RFC 4648, lower-case, of whole groups of five bytes.
std::string base32(const unsigned char* bytes, std::size_t count) {
    constexpr std::string_view digits = "abcdefghijklmnopqrstuvwxyz234567";
    std::string text;
    for (std::size_t at = 0; at < count; at += 5) {
        std::uint64_t group = 0;
        for (std::size_t i = 0; i < 5; ++i) group = group << 8 | bytes[at + i];
        for (int shift = 35; shift >= 0; shift -= 5) text += digits[group >> shift & 31];
    }
    return text;
}

std::int64_t bits_of(std::int32_t first, std::int32_t second) {
    const auto high = static_cast<std::uint64_t>(static_cast<std::uint32_t>(first));
    return static_cast<std::int64_t>(high << 32 | static_cast<std::uint32_t>(second));
}

}  // namespace

advisory_key::advisory_key(const lock_name& name) : kind_{kind::name}, text_{name.str()} {}

advisory_key advisory_key::number(std::int64_t key) {
    return {kind::number, "number " + std::to_string(key), key};
}

advisory_key advisory_key::pair(std::int32_t first, std::int32_t second) {
    return {kind::pair, "pair " + std::to_string(first) + " " + std::to_string(second),
            bits_of(first, second)};
}

advisory_key advisory_key::verbatim(std::string_view text) {
    const bool printable =
        std::ranges::all_of(text, [](char each) { return each >= ' ' && each <= '~'; });
    if (text.empty() || text.size() > longest_verbatim || !printable) {
        throw error{errc::invalid_name,
                    "a verbatim advisory key must have 1 to 64 printable ASCII characters"};
    }
    return {kind::verbatim, std::string{text}, 0};
}

void validate_advisory_domain(std::string_view domain) {
    try {
        static_cast<void>(lock_name{domain});
    } catch (const error& failure) {
        throw error{errc::invalid_options,
                    std::string{"the domain of advisory locks must keep to the rules of lock "
                                "names: "} +
                        failure.what()};
    }
}

std::int64_t advisory_number(const lock_name& name, std::string_view domain) {
    const auto digest = sha256(joined(domain, name));
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < 8; ++i) number = number << 8 | digest[i];
    return static_cast<std::int64_t>(number);
}

std::string advisory_text(const lock_name& name, std::string_view schema, std::string_view domain) {
    validate_advisory_domain(domain);
    if (schema.find('\n') != std::string_view::npos) {
        throw error{errc::invalid_options,
                    "the database's name holds a line feed: use advisory_key::verbatim()"};
    }
    std::string text{domain};
    text.append("\n").append(schema).append("\n").append(name.str());
    const auto digest = sha256(text);
    constexpr std::size_t used = 25;
    return "rowlock_" + base32(digest.data(), used);
}

}  // namespace rowlock

#include "lock/wakeup/hint.hpp"

#include "base/identity.hpp"
#include "base/sha256.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

namespace rowlock::wakeup {
namespace {

constexpr std::size_t secret_digits = 32;
constexpr std::size_t proof_digits = 32;

/// The first half of SHA-256 over the secret and the words. All secrets have one length, so that no
/// other pair makes the same text; and half a digest cannot be continued to that of a longer text.
std::array<char, proof_digits> proof_of(std::string_view words, std::string_view secret) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    text.reserve(secret.size() + words.size());
    text.append(secret).append(words);
    const auto digest = sha256(text);
    std::array<char, proof_digits> proof{};
    for (std::size_t i = 0; i < proof.size(); ++i) {
        const unsigned byte = digest[i / 2];
        proof[i] = digits[i % 2 == 0 ? byte >> 4 : byte & 15];
    }
    return proof;
}

std::string with_proof(std::string words, std::string_view secret) {
    const auto proof = proof_of(words, secret);
    return words.append(1, ' ').append(proof.data(), proof.size());
}

bool read(std::string_view text, std::int64_t& number) {
    const auto end = text.data() + text.size();
    const auto [stopped, failure] = std::from_chars(text.data(), end, number);
    return failure == std::errc{} && stopped == end;
}

bool read(std::string_view text, grant_id& id) {
    std::int64_t number = 0;
    if (!read(text, number)) return false;
    id = grant_id{number};
    return true;
}

/// Removes the first word from the text.
std::string_view first_word(std::string_view& text) {
    const auto word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    return word;
}

}  // namespace

wake_address random_wake_address() {
    return {.number = base::random_id(), .secret = base::random_secret()};
}

std::string notification_channel(const wake_address& of) {
    return "rowlock_" + std::to_string(of.number);
}

std::string encode_wakeup(const announced_grant& grant, std::string_view secret) {
    return with_proof(to_string(grant.grant_id) + ' ' + std::to_string(grant.token) +
                          (grant.asynchronous ? " 1" : " 0"),
                      secret);
}

std::optional<announced_grant> decode_wakeup(std::string_view message) noexcept {
    announced_grant read_out;
    if (!read(first_word(message), read_out.grant_id) || !read(first_word(message), read_out.token))
        return {};
    const auto asynchronous = first_word(message);
    if (asynchronous != "0" && asynchronous != "1") return {};
    read_out.asynchronous = asynchronous == "1";
    if (message.size() != proof_digits) return {};
    return read_out;
}

std::string encode_look(std::int64_t revision, std::string_view secret) {
    return with_proof("look " + std::to_string(revision), secret);
}

std::optional<std::int64_t> decode_look(std::string_view message) noexcept {
    std::int64_t revision = 0;
    if (first_word(message) != "look" || !read(first_word(message), revision)) return {};
    if (message.size() != proof_digits) return {};
    return revision;
}

bool is_proved(std::string_view message, std::string_view secret) {
    if (secret.size() != secret_digits || message.size() <= proof_digits) return false;
    const auto words = message.substr(0, message.size() - proof_digits - 1);
    const auto proof = message.substr(message.size() - proof_digits);
    if (message[words.size()] != ' ') return false;
    const auto right = proof_of(words, secret);
    // Compares all of them, so that the time does not reveal how many are right.
    unsigned different = 0;
    for (std::size_t i = 0; i < proof_digits; ++i) {
        different |= static_cast<unsigned char>(proof[i] ^ right[i]);
    }
    return different == 0;
}

}  // namespace rowlock::wakeup

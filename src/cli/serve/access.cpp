#include "cli/serve/access.hpp"

#include "cli/exit_code.hpp"
#include "cli/private_file.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace rowlock::cli::serving {
namespace {

constexpr int unauthorized = 401;
constexpr int forbidden = 403;
constexpr int unsupported_media_type = 415;

/// Takes the same time wherever the texts differ.
bool is_equal(std::string_view given, std::string_view wanted) noexcept {
    unsigned difference = given.size() == wanted.size() ? 0U : 1U;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const char other = i < given.size() ? given[i] : '\0';
        difference |= static_cast<unsigned>(other ^ wanted[i]);
    }
    return difference == 0;
}

/// As browsers tell: the newer ones by Sec-Fetch-Site, others by Origin where that matters.
bool is_of_another_site(const credentials& with) {
    if (!with.fetch_site.empty()) {
        return with.fetch_site != "same-origin" && with.fetch_site != "none";
    }
    return !with.origin.empty() && !with.origin.ends_with("://" + with.host);
}

}  // namespace

std::string access::read_token(const std::string& path) {
    constexpr std::size_t shortest = 16;
    auto token = read_private_lines({path, "--token-file names"}, lines_wanted::first).front();
    // Those of RFC 6750.
    const bool usable = std::ranges::all_of(token, [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
               std::string_view{"-._~+/="}.find(c) != std::string_view::npos;
    });
    if (token.size() < shortest || !usable) {
        throw failure{misconfigured,
                      "the first line of " + path +
                          " must be a token of 16 or more letters, digits and -._~+/=: (umask 077; "
                          "openssl rand -hex 24 > FILE)"};
    }
    return token;
}

std::optional<refusal> access::of_page(const credentials& with) const {
    if (needs_token() || is_loopback_host(with.host)) return std::nullopt;
    return refusal{
        forbidden,
        "without --token-file only requests to a loopback address or localhost are answered"};
}

std::optional<refusal> access::of_reading(const credentials& with) const {
    if (is_of_another_site(with)) {
        return refusal{forbidden, "requests of another site's page are refused"};
    }
    if (!needs_token()) return of_page(with);
    constexpr std::string_view scheme = "Bearer ";
    const std::string_view given = with.authorization;
    if (given.starts_with(scheme) && is_equal(given.substr(scheme.size()), token_)) {
        return std::nullopt;
    }
    return refusal{unauthorized, "this needs the token: Authorization: Bearer TOKEN"};
}

std::optional<refusal> access::of_breaking(const credentials& with) const {
    if (!allow_break_ || !needs_token()) {
        return refusal{forbidden,
                       "this server breaks no locks: start it with --allow-break and --token-file"};
    }
    if (!with.content_type.starts_with("application/json")) {
        return refusal{unsupported_media_type, "the request must be application/json"};
    }
    return std::nullopt;
}

}  // namespace rowlock::cli::serving

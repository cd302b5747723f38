#pragma once

#include "cli/serve/listen_address.hpp"

#include <optional>
#include <string>

namespace rowlock::cli::serving {

/// What of a request decides whether it is answered.
struct credentials {
    std::string host;           ///< Host
    std::string authorization;  ///< Authorization
    std::string content_type;   ///< Content-Type
    std::string origin;         ///< Origin
    std::string fetch_site;     ///< Sec-Fetch-Site
};

/// Why a request is refused.
struct refusal {
    int status;
    std::string message;
};

/// Decides about requests. Nothing that a browser sends by itself (a cookie, its address) allows
/// anything: a page of another site can neither read nor break.
class access {
public:
    /// @param token without one, requests to a loopback host may read, and none may break
    access(bool allow_break, std::string token)
        : allow_break_{allow_break}, token_{std::move(token)} {}

    /// The token in the first line of a file that its owner alone may read.
    /// @throws failure `misconfigured`
    [[nodiscard]] static std::string read_token(const std::string& path);

    /// nullopt: it may read.
    [[nodiscard]] std::optional<refusal> of_reading(const credentials& with) const;
    /// Of the page itself, which has no data.
    [[nodiscard]] std::optional<refusal> of_page(const credentials& with) const;
    /// nullopt: it may break locks, given that it may read.
    [[nodiscard]] std::optional<refusal> of_breaking(const credentials& with) const;
    [[nodiscard]] bool allows_break() const noexcept { return allow_break_; }
    [[nodiscard]] bool needs_token() const noexcept { return !token_.empty(); }

private:
    const bool allow_break_;
    const std::string token_;
};

}  // namespace rowlock::cli::serving

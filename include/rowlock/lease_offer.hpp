#pragma once

#include <rowlock/fencing_token.hpp>
#include <rowlock/ids.hpp>

#include <string>
#include <string_view>

namespace rowlock {

/// @addtogroup leases
/// @{

/// A lease that its holder gives to another process: lease::offer() makes it, client::adopt() takes
/// it. Send it by any means, as text or field by field. Treat it as a secret: the first process
/// that adopts it has the lock.
struct lease_offer {
    std::string name{};             ///< of the lock
    rowlock::session_id session{};  ///< of the giver
    rowlock::grant_id grant_id{};   ///< of the giver's grant
    fencing_token token{};          ///< of the giver's grant

    /// One line, for an environment variable or a pipe. The name comes last, as it is.
    [[nodiscard]] std::string text() const;
    /// The opposite.
    /// @throws error errc::invalid_options if it is not such a text, errc::invalid_name
    [[nodiscard]] static lease_offer parse(std::string_view text);

    friend bool operator==(const lease_offer&, const lease_offer&) = default;  ///< by all fields
};

/// @}

}  // namespace rowlock

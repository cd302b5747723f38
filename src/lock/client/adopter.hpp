#pragma once

#include "lock/session/client_context.hpp"
#include "lock/session/grant_lifecycle.hpp"
#include "lock/session/retry_loop.hpp"
#include "lock/session/session_registry.hpp"
#include <rowlock/lease_offer.hpp>

#include <memory>

namespace rowlock::detail {

/// Takes over leases that clients offer. Thread-safe.
class adopter {
public:
    adopter(client_context& context, session_registry& sessions, retry_loop& retries,
            grant_lifecycle& grants)
        : context_{context}, sessions_{sessions}, retries_{retries}, grants_{grants} {}

    /// Returns null if that grant is over, or so nearly that nothing is left of it.
    /// @throws error errc::invalid_options if this client holds it and has not offered it
    std::shared_ptr<grant> adopt(const lease_offer& offer);

private:
    /// One call. Its grant has an id of its own: what a late release of the giver's, or an earlier
    /// attempt, does to the row concerns another grant.
    struct attempt {
        std::shared_ptr<session> ours{};
        rowlock::grant_id id{};
        bool unsure = false;  ///< a reply was lost: it may have been granted
    };

    [[nodiscard]] bool is_over(const lease_offer& offer) const;
    [[nodiscard]] std::shared_ptr<grant> own(const lease_offer& offer) const;
    std::shared_ptr<grant> adopt_once(const lease_offer& offer, attempt& mine, sql::connection& db,
                                      sql::deadline until);
    std::shared_ptr<grant> make_grant(const lease_offer& offer, const attempt& mine,
                                      const protocol::adopted_lease& row, nanoseconds sent);
    void use(std::shared_ptr<session> next, attempt& mine, const lease_offer& offer);
    void give_up(const attempt& mine, const lease_offer& offer) noexcept;

    client_context& context_;
    session_registry& sessions_;
    retry_loop& retries_;
    grant_lifecycle& grants_;
};

}  // namespace rowlock::detail

#include "lock/protocol/hold/hold_protocol.hpp"

namespace rowlock::protocol {
namespace {

class lease_holds final : public hold_protocol {
public:
    lease_holds(const lease_protocol& leases, const queue_protocol& queues)
        : leases_{leases}, queues_{queues} {}

    attempt acquire(sql::connection& db, const grant_request& request,
                    sql::deadline until) const override {
        return leases_.acquire(db, request, until);
    }
    std::optional<std::int64_t> find_grant(sql::connection& db, std::string_view name,
                                           session_id session, grant_id grant_id,
                                           sql::deadline until) const override {
        return leases_.find_grant(db, name, session, grant_id, until);
    }
    std::optional<queue_grant> served(sql::connection& db, std::string_view name,
                                      session_id session, grant_id grant_id,
                                      sql::deadline until) const override {
        return queues_.served(db, name, session, grant_id, until);
    }
    release_outcome release(sql::connection& db, std::string_view name, session_id session,
                            grant_id grant_id, release_hint hint,
                            sql::deadline until) const override {
        return queues_.release(db, name, session, grant_id, hint.contended, until);
    }

private:
    const lease_protocol& leases_;
    const queue_protocol& queues_;
};

}  // namespace

std::unique_ptr<const hold_protocol> make_lease_holds(const lease_protocol& leases,
                                                      const queue_protocol& queues) {
    return std::make_unique<const lease_holds>(leases, queues);
}

}  // namespace rowlock::protocol

#include <rowlock/error.hpp>

#include <ostream>

namespace rowlock {
namespace {

class category final : public std::error_category {
public:
    [[nodiscard]] const char* name() const noexcept override { return "rowlock"; }
    [[nodiscard]] std::string message(int code) const override {
        switch (static_cast<errc>(code)) {
            case errc::invalid_name:
                return "invalid lock name";
            case errc::invalid_options:
                return "invalid options";
            case errc::invalid_url:
                return "invalid database URL";
            case errc::lock_lost:
                return "the lock was lost";
            case errc::not_owner:
                return "not the owner of the lock";
            case errc::would_deadlock:
                return "the calling thread already holds the lock";
            case errc::deadlock:
                return "deadlock";
            case errc::timed_out:
                return "timed out";
            case errc::database_unreachable:
                return "the database cannot be reached";
            case errc::access_denied:
                return "access denied";
            case errc::read_only:
                return "the database is read-only";
            case errc::out_of_resources:
                return "the database is out of resources";
            case errc::outcome_unknown:
                return "the outcome is unknown";
            case errc::schema_outdated:
                return "the schema does not fit this library";
            case errc::unsupported:
                return "not supported here";
            case errc::unindexed_key:
                return "the key has no unique index";
            case errc::conflict:
                return "a concurrent change won";
            case errc::unique_violation:
                return "a row with this key exists";
            case errc::wrong_process:
                return "the object belongs to another process";
            case errc::broken:
                return "the latch or barrier is broken";
            case errc::database_error:
                return "the database reported an error";
        }
        return "unknown error";
    }
};

}  // namespace

std::string_view to_string(errc code) noexcept {
    switch (code) {
        case errc::invalid_name:
            return "invalid_name";
        case errc::invalid_options:
            return "invalid_options";
        case errc::invalid_url:
            return "invalid_url";
        case errc::lock_lost:
            return "lock_lost";
        case errc::not_owner:
            return "not_owner";
        case errc::would_deadlock:
            return "would_deadlock";
        case errc::deadlock:
            return "deadlock";
        case errc::timed_out:
            return "timed_out";
        case errc::database_unreachable:
            return "database_unreachable";
        case errc::access_denied:
            return "access_denied";
        case errc::read_only:
            return "read_only";
        case errc::out_of_resources:
            return "out_of_resources";
        case errc::outcome_unknown:
            return "outcome_unknown";
        case errc::schema_outdated:
            return "schema_outdated";
        case errc::unsupported:
            return "unsupported";
        case errc::unindexed_key:
            return "unindexed_key";
        case errc::conflict:
            return "conflict";
        case errc::unique_violation:
            return "unique_violation";
        case errc::wrong_process:
            return "wrong_process";
        case errc::broken:
            return "broken";
        case errc::database_error:
            return "database_error";
    }
    return "unknown";
}

std::ostream& operator<<(std::ostream& out, errc code) {
    return out << to_string(code);
}

const std::error_category& error_category() noexcept {
    static const category instance;
    return instance;
}

std::error_code make_error_code(errc code) noexcept {
    return {static_cast<int>(code), error_category()};
}

error::error(errc code, const std::string& message) : error{code, message, {}} {}

error::error(errc code, const std::string& message, server_report report)
    : std::system_error{make_error_code(code), message},
      kind_{code},
      message_{std::make_shared<const std::string>(message)},
      report_{std::move(report)} {}

bool error::retryable() const noexcept {
    switch (kind_) {
        case errc::deadlock:
        case errc::timed_out:
        case errc::database_unreachable:
        case errc::out_of_resources:
        case errc::conflict:
            return true;
        default:
            return false;
    }
}

}  // namespace rowlock

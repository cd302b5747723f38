#include "common/mysql.hpp"
#include "handoff/contests.hpp"

#include <cppconn/connection.h>
#include <cppconn/prepared_statement.h>
#include <cppconn/resultset.h>

#include <stdexcept>

namespace handoff {
namespace {

class get_lock_contender final : public contender {
public:
    get_lock_contender(const std::string& url, const std::string& name, const entrant& who)
        : connection_{bench::connect_mysql(url)},
          lock_{connection_->prepareStatement("select get_lock(?, 60)")},
          unlock_{connection_->prepareStatement("select release_lock(?)")},
          statements_{who.statements} {
        lock_->setString(1, name);
        unlock_->setString(1, name);
    }
    void acquire() override { run(*lock_); }
    void release() override { run(*unlock_); }

private:
    void run(::sql::PreparedStatement& statement) {
        ++statements_;
        const std::unique_ptr<::sql::ResultSet> rows{statement.executeQuery()};
        if (!rows->next() || rows->getInt(1) != 1) {
            throw std::runtime_error{"waited for a minute and got nothing"};
        }
    }

    std::shared_ptr<::sql::Connection> connection_;
    std::unique_ptr<::sql::PreparedStatement> lock_;
    std::unique_ptr<::sql::PreparedStatement> unlock_;
    std::atomic<std::uint64_t>& statements_;
};

}  // namespace

contest mysql_get_lock(const std::string& url, const std::string& tag) {
    return {"floor: GET_LOCK", [=](const entrant& who) {
                return std::make_unique<get_lock_contender>(url, tag, who);
            }};
}

}  // namespace handoff

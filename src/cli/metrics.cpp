// `rowlock metrics`.

#include "cli/commands.hpp"
#include "cli/doctor.hpp"
#include "cli/measure.hpp"
#include "cli/output_file.hpp"
#include "cli/text.hpp"
#include "metrics/database_totals.hpp"
#include "metrics/text.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace rowlock::cli {
namespace {

std::string verdicts(const std::vector<finding>& findings) {
    metrics::text out;
    out.begin(metrics::database_doctor);
    for (const auto& each : findings) {
        out.sample({{"check", each.check}}, static_cast<std::uint64_t>(each.how));
    }
    return out.str();
}

}  // namespace

std::string measure(const database& in) {
    examination patient{in, examination::scope::reads};
    auto& db = patient.rowlock_connection();
    const auto until = std::chrono::steady_clock::now() + examination::counting_time;
    const auto totals = metrics::read_totals(db, patient.statements(), until);
    examine(patient);
    return metrics::to_text(totals) + verdicts(patient.findings());
}

int metrics(const metrics_options& options) {
    if (options.output) require_replaceable(*options.output);
    const database in = find_database(options.database);
    const std::string text = with_tables(in, [&] { return measure(in); });
    if (options.output) {
        replace_file(*options.output, text);
    } else {
        print(text);
    }
    return success;
}

}  // namespace rowlock::cli

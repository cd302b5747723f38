#pragma once

#include "support/silent_reporter.hpp"

#include <cstdio>
#include <string_view>

namespace support {

inline int cases_begun = 0;

/// Names each case and subcase on standard error as it begins: of a program that hung and was
/// killed, the last line tells where. Says how long each case took, in the form that
/// scripts/test-index --times reads.
class progress final : public silent_reporter {
public:
    explicit progress(const doctest::ContextOptions&) {}

    void test_case_start(const doctest::TestCaseData& which) override {
        ++cases_begun;
        now_ = &which;
        std::fprintf(stderr, "case: %s\n", which.m_name);
    }
    void subcase_start(const doctest::SubcaseSignature& which) override {
        std::fprintf(stderr, "  in: %s\n", which.m_name.c_str());
    }
    void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
        std::string_view file{now_->m_file.c_str()};
        constexpr std::string_view tests = "/tests/";
        const auto at = file.rfind(tests);
        if (at != file.npos) file.remove_prefix(at + tests.size());
        std::fprintf(stderr, "time: %.3f %.*s: %s\n", stats.seconds, static_cast<int>(file.size()),
                     file.data(), now_->m_name);
    }

private:
    const doctest::TestCaseData* now_ = nullptr;
};

REGISTER_LISTENER("progress", 1, progress);

}  // namespace support

// What a mistyped word was meant to be.
#include "examples/tools/nearest.hpp"

#include "catch.hpp"

using kaiju::tools::nearest, kaiju::tools::typing_errors;

TEST_CASE("letters that are wrong, missing, too many or exchanged are one error each") {
  CHECK(typing_errors("retry", "retry") == 0);
  CHECK(typing_errors("retyr", "retry") == 1);
  CHECK(typing_errors("rety", "retry") == 1);
  CHECK(typing_errors("rettry", "retry") == 1);
  CHECK(typing_errors("retrz", "retry") == 1);
  CHECK(typing_errors("RETRY", "retry") == 0);
  CHECK(typing_errors("", "undo") == 4);
  CHECK(typing_errors("undo", "") == 4);
}

TEST_CASE("the nearest word is suggested, and none where none is near") {
  const std::vector<std::string> words = {"--say", "--seed", "--temperature", "--top-k", "--top-p", "/undo", "/q"};
  CHECK(nearest("--sed", words) == "--seed");
  CHECK(nearest("--temprature", words) == "--temperature");
  CHECK(nearest("--temp", words) == "--temperature");
  CHECK(nearest("/udno", words) == "/undo");
  CHECK(nearest("/Undo", words) == "/undo");
  for (const char* far : {"", "-", "--", "/", "/x", "--nonsense", "/exit", "\xFF\xFE", "--s"}) {
    INFO(far);
    CHECK(nearest(far, words).empty());
  }
  CHECK(nearest(std::string(1 << 20, 's'), words).empty());
}

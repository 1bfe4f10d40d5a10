# make VARIANT=fuzz CC=clang-14 fuzz: every tests/fuzz/fuzz_NAME.c becomes build/fuzz/fuzz_NAME (libFuzzer, ASan, UBSan).
#
# To add a target NAME:
#   fuzz_NAME.c            LLVMFuzzerTestOneInput; checks what must hold with abort(), does not only wait for a crash
#   corpus/NAME/           small seeds, one a file, that reach the accepting end of the code
#   fuzz_NAME.dict         optional: words of the format, one a line in quotes (libFuzzer -dict)
#   planted/NAME.patch     patch -p1 of src/ that breaks one check; the target must find it (run.py --planted)
# Targets link src/base, src/text, src/model and src/server, neither engine nor backends.
# tests/fuzz/run.py finds all of them by these names; it runs in the root of the tree, so targets may read test data there.

FUZZERS := $(patsubst tests/fuzz/fuzz_%.c,$O/fuzz_%,$(wildcard tests/fuzz/fuzz_*.c))

.PHONY: fuzz
fuzz: $(FUZZERS)

FUZZ_OBJ := $(patsubst %.c,$O/%.o,$(wildcard src/server/*.c))

$O/libserver.a: $(FUZZ_OBJ)
	$(SAY) ar $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$O/fuzz_%: $O/tests/fuzz/fuzz_%.o $O/libserver.a $O/libcalla.a
	$(SAY) link $@
	$(Q)$(CC) -fsanitize=fuzzer,address,undefined $(LDFLAGS) -o $@ $^ $(LIBS)

-include $(wildcard $O/tests/fuzz/*.d)

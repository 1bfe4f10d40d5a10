# calla: make (build/calla), make deps, make demo, make test, make test-all (the long rest), make clean.
# VARIANT=asan|tsan|fuzz builds into build/<variant>; CC=clang works too.

VARIANT ?= release
CC      ?= cc
PYTHON  ?= python3
O       := $(if $(filter release,$(VARIANT)),build,build/$(VARIANT))
JOBS    ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
ARCH    := $(shell $(CC) -dumpmachine | cut -d- -f1)

# make V=1 shows the commands.
Q       := $(if $(V),,@)
SAY     := @$(if $(V),:,echo " ")

PKGS := libevent libevent_pthreads json-c libpcre2-8 libutf8proc libzstd libxxhash libedit libcurl openssl

WARN    := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror
# Sanitized kernels at -O3 take minutes to compile.
CFLAGS  ?= $(if $(filter release,$(VARIANT)),-O3,-O1) -g
BASE    := -std=c11 -D_POSIX_C_SOURCE=200809L $(WARN) -ffp-contract=off -fno-math-errno -Iinclude -Isrc
ifeq ($(VARIANT),asan)
  BASE += -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
  SAN  := -fsanitize=address,undefined
else ifeq ($(VARIANT),tsan)
  BASE += -fsanitize=thread
  SAN  := -fsanitize=thread
else ifeq ($(VARIANT),fuzz)
  BASE += -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
  SAN  := -fsanitize=address,undefined
endif

# Instruction sets by file name: the only place where they are chosen at build time.
ISA_avx2   := -mavx2 -mfma -mf16c -mbmi2
ISA_avx512 := $(ISA_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq
ISA_avx512vnni := $(ISA_avx512) -mavx512vnni
ISA_neon   := -march=armv8.2-a+dotprod+fp16
ISA_neoni8mm := -march=armv8.2-a+dotprod+fp16+i8mm
isa_flags   = $(ISA_$(lastword $(subst _, ,$(basename $(notdir $(1))))))
X86_ONLY   := %_avx2.c %_avx512.c %_avx512vnni.c
ARM_ONLY   := %_neon.c %_neoni8mm.c
FOREIGN    := $(if $(filter x86_64,$(ARCH)),$(ARM_ONLY),$(if $(filter aarch64 arm64,$(ARCH)),$(X86_ONLY),$(X86_ONLY) $(ARM_ONLY)))

# Fuzz targets are parsers: they need neither engine nor kernels.
UNFUZZED := $(if $(filter fuzz,$(VARIANT)),src/cpu/%.c src/engine/%.c)
LIB_SRC  := $(filter-out $(FOREIGN) $(UNFUZZED),$(wildcard src/base/*.c src/text/*.c src/model/*.c src/engine/*.c src/cpu/*.c))
APP_SRC  := $(wildcard src/server/*.c src/cli/*.c)
UNIT_SRC := $(wildcard tests/unit/test_*.c)
LIB_OBJ  := $(LIB_SRC:%.c=$O/%.o)
APP_OBJ  := $(APP_SRC:%.c=$O/%.o)
UNITS    := $(UNIT_SRC:tests/unit/%.c=$O/tests/unit/%)

LIBS     = $(shell pkg-config --libs $(PKGS)) -lm -lpthread
PKGFLAGS = $(shell pkg-config --cflags $(PKGS))

.PHONY: all deps demo test test-all clean
all: $O/calla

$O/calla: $(APP_OBJ) $O/libcalla.a
	$(SAY) link $@
	$(Q)$(CC) $(SAN) $(LDFLAGS) -o $@ $^ $(LIBS)

$O/libcalla.a: $(LIB_OBJ)
	$(SAY) ar $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$O/%.o: %.c
	@mkdir -p $(dir $@)
	$(SAY) cc $<
	$(Q)$(CC) $(BASE) $(CFLAGS) $(call isa_flags,$<) $(PKGFLAGS) -MMD -MP -c -o $@ $<

$O/tests/unit/%: $O/tests/unit/%.o $O/libcalla.a
	$(SAY) link $@
	$(Q)$(CC) $(SAN) $(LDFLAGS) -o $@ $^ $(LIBS) $(shell pkg-config --libs cmocka)

include $(wildcard build/rules.mk tests/*/rules.mk)

deps:
	@sh tools/deps.sh

# MODEL=DIR takes a checkpoint of your own instead of the small trained one.
demo: deps
	@$(MAKE) --no-print-directory -j$(JOBS) all
	@$(PYTHON) tools/demo_talk.py $O/calla $(if $(MODEL),$(MODEL),models/demo tests/golden/data/demo.json.zst)

test: deps
	@$(MAKE) --no-print-directory -j$(JOBS) test-build
	@$(PYTHON) tests/run.py --build $O quick

test-all:
	@sh tools/deps.sh all
	@$(MAKE) --no-print-directory -j$(JOBS) test-build
	@$(PYTHON) tests/run.py --build $O all

.SECONDARY:
.PHONY: test-build unit-build
test-build: all $(UNITS) $(TEST_PROGRAMS)
unit-build: $(UNITS)

clean:
	rm -rf build

-include $(LIB_OBJ:.o=.d) $(APP_OBJ:.o=.d) $(UNITS:=.d)

/// <reference types="vitest/config" />
import { svelte, vitePreprocess } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, type BuildEnvironmentOptions, type Plugin } from "vite";

/** The licenses of what is bundled, beside it: the fonts ask for that. */
function licenses(): Plugin {
  const fonts = ["inter", "source-serif-4"];
  return {
    name: "licenses",
    apply: "build",
    async generateBundle() {
      for (const font of fonts) {
        const source = await this.fs.readFile(`node_modules/@fontsource-variable/${font}/LICENSE`, { encoding: "utf8" });
        this.emitFile({ type: "asset", fileName: `licenses/${font}.txt`, source });
      }
    },
  };
}

const STATIC = "../src/glassformer/server/static";

/** The page of `glass studio`: modules, and a page of it is loaded when it is opened. */
const page: BuildEnvironmentOptions = {
  outDir: STATIC,
  // The page's rules allow no data: fonts, and one more small file on loopback costs nothing.
  assetsInlineLimit: 0,
  modulePreload: { polyfill: false },
};

/** The same for a tour without a server: from a disk neither modules nor fonts of other files are loaded. */
const tour: BuildEnvironmentOptions = {
  outDir: `${STATIC}/tour`,
  assetsInlineLimit: 1 << 20,
  cssCodeSplit: false,
  modulePreload: false,
  rolldownOptions: {
    input: "src/main.ts",
    transform: { define: { "import.meta": "{}" } }, // a classic script has none
    output: { format: "iife", codeSplitting: false, entryFileNames: "tour.js", assetFileNames: "tour[extname]" },
  },
};

export default defineConfig(({ mode }) => ({
  plugins: [svelte({ preprocess: vitePreprocess(), configFile: false }), licenses()],
  build: { ...(mode === "tour" ? tour : page), emptyOutDir: true, target: "es2022", reportCompressedSize: false },
  server: { fs: { allow: [".."] } },
  test: { include: ["src/**/*.test.ts"] },
}));

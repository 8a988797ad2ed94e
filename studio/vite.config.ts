/// <reference types="vitest/config" />
import { svelte, vitePreprocess } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, type Plugin } from "vite";

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

export default defineConfig({
  plugins: [svelte({ preprocess: vitePreprocess(), configFile: false }), licenses()],
  build: {
    outDir: "../src/glassformer/server/static",
    emptyOutDir: true,
    target: "es2022",
    // The page's rules allow no data: fonts, and one more small file on loopback costs nothing.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: { fs: { allow: [".."] } },
  test: { include: ["src/**/*.test.ts"] },
});
